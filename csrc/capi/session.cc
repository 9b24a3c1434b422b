#include <limits>

#include "capi/capi.h"

using les::capi::fail;
using les::capi::guard;

namespace {

les_status check_eval(const les_session* session, size_t n_tokens) {
  const auto context = static_cast<size_t>(session->session->engine().context());
  const auto held = static_cast<size_t>(session->session->position());
  if (n_tokens <= context - held) return LES_OK;
  return fail(LES_CONTEXT_FULL, "%zu tokens after %zu do not fit into a context of %zu", n_tokens, held, context);
}

}  // namespace

les_status les_session_new(les_model* model, les_session** session) {
  LES_REQUIRE(model);
  LES_REQUIRE(session);
  return guard([&]() -> les::Status {
    LES_ASSIGN_OR_RETURN(auto made, model->engine->make_session());
    auto handle = std::make_unique<les_session>();
    handle->session = std::move(made);
    handle->logits.resize(static_cast<size_t>(model->engine->config().n_vocab));
    *session = handle.release();
    return les::Status::ok();
  });
}

void les_session_free(les_session* session) { delete session; }

les_status les_session_eval(les_session* session, const int32_t* tokens, size_t n_tokens) {
  LES_REQUIRE(session);
  LES_REQUIRE(tokens);
  session->has_logits = false;
  return guard([&]() -> les_status {
    if (const les_status status = check_eval(session, n_tokens); status != LES_OK) return status;
    const int n_rows = n_tokens > 0 ? 1 : 0;
    const les_status status =
        les::capi::report(session->session->eval({tokens, n_tokens}, n_rows, session->logits.data()));
    session->has_logits = status == LES_OK;
    return status;
  });
}

les_status les_session_logits(const les_session* session, const float** logits, size_t* n_vocab) {
  LES_REQUIRE(session);
  LES_REQUIRE(logits);
  LES_REQUIRE(n_vocab);
  if (!session->has_logits) return fail(LES_NOT_FOUND, "no logits: les_session_eval was not the last to succeed");
  *logits = session->logits.data();
  *n_vocab = session->logits.size();
  return LES_OK;
}

les_status les_session_eval_rows(les_session* session, const int32_t* tokens, size_t n_tokens, size_t n_rows,
                                 float* logits, size_t capacity) {
  LES_REQUIRE(session);
  LES_REQUIRE(tokens);
  if (n_rows > 0) LES_REQUIRE(logits);
  if (n_rows > n_tokens) {
    return fail(LES_INVALID_ARGUMENT, "%zu rows of logits asked of %zu tokens", n_rows, n_tokens);
  }
  if (capacity / session->logits.size() < n_rows) {
    return fail(LES_BUFFER_TOO_SMALL, "%zu rows of %zu logits do not fit into %zu", n_rows, session->logits.size(),
                capacity);
  }
  session->has_logits = false;
  return guard([&]() -> les_status {
    if (const les_status status = check_eval(session, n_tokens); status != LES_OK) return status;
    return les::capi::report(session->session->eval({tokens, n_tokens}, static_cast<int>(n_rows), logits));
  });
}

size_t les_session_position(const les_session* session) {
  return session == nullptr ? 0 : static_cast<size_t>(session->session->position());
}

les_status les_session_tokens(const les_session* session, const int32_t** tokens, size_t* n_tokens) {
  LES_REQUIRE(session);
  LES_REQUIRE(tokens);
  LES_REQUIRE(n_tokens);
  *tokens = session->session->tokens().data();
  *n_tokens = session->session->tokens().size();
  return LES_OK;
}

les_status les_session_rewind(les_session* session, size_t n_tokens) {
  LES_REQUIRE(session);
  session->has_logits = false;
  return guard([&]() -> les::Status {
    constexpr auto kMost = static_cast<size_t>(std::numeric_limits<int>::max());
    return session->session->rewind(static_cast<int>(std::min(n_tokens, kMost)));
  });
}

les_status les_session_save(les_session* session, const char* path) {
  LES_REQUIRE(session);
  LES_REQUIRE(path);
  return guard([&] { return session->session->save(path); });
}

les_status les_session_load(les_session* session, const char* path) {
  LES_REQUIRE(session);
  LES_REQUIRE(path);
  session->has_logits = false;
  return guard([&] { return session->session->load(path); });
}

les_status les_session_cancel(les_session* session) {
  LES_REQUIRE(session);
  return guard([&] {
    session->session->cancel();
    return LES_OK;
  });
}

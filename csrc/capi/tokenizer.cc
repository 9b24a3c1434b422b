#include "capi/capi.h"
#include "engine/vocab.h"
#include "store/gguf.h"

using les::Status;
using les::capi::fail;
using les::capi::guard;

namespace {

les_status check_flags(uint32_t flags, uint32_t known) {
  if ((flags & ~known) == 0) return LES_OK;
  return fail(LES_INVALID_ARGUMENT, "flags are 0x%x; expected none but 0x%x", flags, known);
}

les_status check_token(const les::Tokenizer& tokenizer, int32_t token) {
  if (token >= 0 && token < tokenizer.n_vocab()) return LES_OK;
  return fail(LES_INVALID_ARGUMENT, "token %d is out of range; expected 0 to %d", token, tokenizer.n_vocab() - 1);
}

}  // namespace

les_status les_model_tokenizer(const les_model* model, les_tokenizer** tokenizer) {
  LES_REQUIRE(model);
  LES_REQUIRE(tokenizer);
  return guard([&] {
    *tokenizer = new les_tokenizer{model->engine->tokenizer()};
    return LES_OK;
  });
}

les_status les_tokenizer_open(const char* path, les_tokenizer** tokenizer) {
  LES_REQUIRE(path);
  LES_REQUIRE(tokenizer);
  return guard([&]() -> Status {
    LES_ASSIGN_OR_RETURN(const auto file, les::open_gguf(path));
    LES_ASSIGN_OR_RETURN(les::VocabSpec spec, les::vocab_from_gguf(*file));
    auto made = les::make_tokenizer(std::move(spec));
    if (!made.is_ok()) return Status(made.status().code(), file->path() + ": " + made.status().message());
    *tokenizer = new les_tokenizer{std::move(*made)};
    return Status::ok();
  });
}

void les_tokenizer_free(les_tokenizer* tokenizer) { delete tokenizer; }

les_status les_tokenizer_encode(const les_tokenizer* tokenizer, const char* text, size_t n_bytes, uint32_t flags,
                                int32_t* tokens, size_t capacity, size_t* n_tokens) {
  LES_REQUIRE(tokenizer);
  LES_REQUIRE(n_tokens);
  if (n_bytes > 0) LES_REQUIRE(text);
  return guard([&]() -> les_status {
    if (const les_status s = check_flags(flags, LES_ENCODE_MARKUP | LES_ENCODE_SPECIAL); s != LES_OK) return s;
    const std::string_view view(n_bytes > 0 ? text : "", n_bytes);
    if (les::repair_utf8(std::string(view), true, nullptr) != view) {
      return fail(LES_INVALID_ARGUMENT, "the text of %zu bytes is not valid UTF-8", n_bytes);
    }
    const les::EncodeOptions options{(flags & LES_ENCODE_MARKUP) != 0, (flags & LES_ENCODE_SPECIAL) != 0};
    const std::vector<int32_t> ids = tokenizer->tokenizer->encode(view, options);
    *n_tokens = ids.size();
    if (tokens == nullptr) return LES_OK;
    if (capacity < ids.size()) {
      return fail(LES_BUFFER_TOO_SMALL, "%zu tokens do not fit into %zu", ids.size(), capacity);
    }
    std::copy(ids.begin(), ids.end(), tokens);
    return LES_OK;
  });
}

les_status les_tokenizer_decode(const les_tokenizer* tokenizer, const int32_t* tokens, size_t n_tokens, uint32_t flags,
                                char* buffer, size_t capacity, size_t* n_bytes) {
  LES_REQUIRE(tokenizer);
  LES_REQUIRE(n_bytes);
  if (n_tokens > 0) LES_REQUIRE(tokens);
  return guard([&]() -> les_status {
    if (const les_status s = check_flags(flags, LES_DECODE_CONTROL); s != LES_OK) return s;
    for (size_t i = 0; i < n_tokens; ++i) {
      if (const les_status s = check_token(*tokenizer->tokenizer, tokens[i]); s != LES_OK) return s;
    }
    const std::string bytes = tokenizer->tokenizer->decode({tokens, n_tokens}, (flags & LES_DECODE_CONTROL) != 0);
    return les::capi::copy_text(les::repair_utf8(bytes, true, nullptr), buffer, capacity, n_bytes);
  });
}

les_status les_tokenizer_find(const les_tokenizer* tokenizer, const char* name, int32_t* token) {
  LES_REQUIRE(tokenizer);
  LES_REQUIRE(name);
  LES_REQUIRE(token);
  return guard([&]() -> les_status {
    const int32_t found = tokenizer->tokenizer->token_to_id(name);
    if (found == les::kNoToken) return fail(LES_NOT_FOUND, "the vocabulary has no token '%s'", name);
    *token = found;
    return LES_OK;
  });
}

int32_t les_tokenizer_n_vocab(const les_tokenizer* tokenizer) {
  return tokenizer == nullptr ? 0 : tokenizer->tokenizer->n_vocab();
}

int32_t les_tokenizer_bos(const les_tokenizer* tokenizer) {
  return tokenizer == nullptr ? LES_NO_TOKEN : tokenizer->tokenizer->spec().bos;
}

int32_t les_tokenizer_eos(const les_tokenizer* tokenizer) {
  return tokenizer == nullptr ? LES_NO_TOKEN : tokenizer->tokenizer->spec().eos;
}

int32_t les_tokenizer_is_end(const les_tokenizer* tokenizer, int32_t token) {
  return tokenizer != nullptr && tokenizer->tokenizer->is_eog(token) ? 1 : 0;
}

les_status les_detokenizer_new(const les_tokenizer* tokenizer, uint32_t flags, les_detokenizer** detokenizer) {
  LES_REQUIRE(tokenizer);
  LES_REQUIRE(detokenizer);
  return guard([&]() -> les_status {
    if (const les_status s = check_flags(flags, LES_DECODE_CONTROL); s != LES_OK) return s;
    const auto& held = tokenizer->tokenizer;
    *detokenizer = new les_detokenizer{held, les::Detokenizer(held, (flags & LES_DECODE_CONTROL) != 0), {}};
    return LES_OK;
  });
}

void les_detokenizer_free(les_detokenizer* detokenizer) { delete detokenizer; }

les_status les_detokenizer_add(les_detokenizer* detokenizer, int32_t token, const char** text, size_t* n_bytes) {
  LES_REQUIRE(detokenizer);
  LES_REQUIRE(text);
  LES_REQUIRE(n_bytes);
  return guard([&]() -> les_status {
    if (const les_status s = check_token(*detokenizer->tokenizer, token); s != LES_OK) return s;
    detokenizer->text = detokenizer->stream.add(token);
    *text = detokenizer->text.c_str();
    *n_bytes = detokenizer->text.size();
    return LES_OK;
  });
}

les_status les_detokenizer_finish(les_detokenizer* detokenizer, const char** text, size_t* n_bytes) {
  LES_REQUIRE(detokenizer);
  LES_REQUIRE(text);
  LES_REQUIRE(n_bytes);
  return guard([&] {
    detokenizer->text = detokenizer->stream.finish();
    *text = detokenizer->text.c_str();
    *n_bytes = detokenizer->text.size();
    return LES_OK;
  });
}

#include "engine/session.h"

#include <algorithm>
#include <new>

#include "base/clock.h"
#include "engine/model_needs.h"

namespace les {

Session::~Session() {
  if (is_counted_) engine_->drop_session();
}

void Session::cancel() {
  is_cancelled_.store(true, std::memory_order_relaxed);
  engine_->scheduler_->wake();
}

Status Session::check_eval(std::span<const int32_t> tokens, int n_logits) const {
  const int n_vocab = engine_->config().n_vocab;
  if (tokens.empty()) return make_error(Code::kInvalidArgument, "eval needs at least one token");
  if (n_logits < 0 || n_logits > static_cast<int>(tokens.size())) {
    return make_error(Code::kInvalidArgument, "%d rows of logits asked of %zu tokens", n_logits, tokens.size());
  }
  for (const int32_t token : tokens) {
    if (token < 0 || token >= n_vocab) {
      return make_error(Code::kInvalidArgument, "token %d is out of range; expected 0 to %d", token, n_vocab - 1);
    }
  }
  if (tokens_.size() + tokens.size() > static_cast<size_t>(engine_->context())) {
    return make_error(Code::kInvalidArgument, "%zu tokens after %zu do not fit into a context of %d", tokens.size(),
                      tokens_.size(), engine_->context());
  }
  return Status::ok();
}

Status Session::run_chunk(std::span<const int32_t> tokens, int n_logits, float* logits) {
  Engine& engine = *engine_;
  Step step;
  step.exec = &engine.exec_;
  step.state = &state_;
  step.moe = engine.moe_.get();
  step.tokens = tokens;
  step.n = static_cast<int>(tokens.size());
  step.position = state_.position();
  step.n_logits = n_logits;
  step.embed = &engine.embed_;
  step.logits = logits;
  step.is_cancelled = &is_cancelled_;
  ScratchScope scope(engine.scratch_);
  if (drafter_ != nullptr) {
    step.tap_layers = drafter_->model.target_layers;
    step.taps = engine.scratch_.alloc<float>(tokens.size() * step.tap_layers.size() *
                                             static_cast<size_t>(engine.config().d_model));
  }
  const int64_t start_ns = now_ns();
  engine.scheduler_->set_cancel_flag(&is_cancelled_);
  const Status status = engine.graph_->forward(step);
  engine.scheduler_->set_cancel_flag(nullptr);
  LES_RETURN_IF_ERROR(status);
  if (drafter_ != nullptr) {
    observe_taps(drafter_->model, engine.exec_, draft_state_, step.taps, step.n, step.position);
    if (step.position <= drafter_rows_) drafter_rows_ = std::max(drafter_rows_, step.position + step.n);
  }
  state_.commit(step.n);
  const int64_t took_ns = now_ns() - start_ns;
  EngineCounters& counters = engine.counters_;
  ++counters.n_steps;
  (step.n == 1 ? counters.decode_tokens : counters.prefill_tokens) += static_cast<uint64_t>(step.n);
  (step.n == 1 ? counters.decode_ns : counters.prefill_ns) += took_ns;
  return Status::ok();
}

Status Session::run_tokens(std::span<const int32_t> tokens, int n_logits, float* logits, bool is_new) {
  const auto chunk = static_cast<size_t>(engine_->plan_.chunk);
  const size_t n_vocab = static_cast<size_t>(engine_->config().n_vocab);
  const size_t first_logit = tokens.size() - static_cast<size_t>(n_logits);
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const size_t n = std::min(chunk, tokens.size() - at);
    const size_t wanted = at + n > first_logit ? std::min(n, at + n - first_logit) : 0;
    float* to = wanted > 0 ? logits + (at + n - wanted - first_logit) * n_vocab : nullptr;
    LES_RETURN_IF_ERROR(run_chunk(tokens.subspan(at, n), static_cast<int>(wanted), to));
  }
  if (is_new && static_cast<int>(tokens.size()) > kLogTokens) keep_checkpoint();
  return Status::ok();
}

Status Session::eval(std::span<const int32_t> tokens, int n_logits, float* logits) {
  LES_RETURN_IF_ERROR(check_eval(tokens, n_logits));
  Engine& engine = *engine_;
  const std::lock_guard lock(engine.mutex_);
  is_cancelled_.store(false, std::memory_order_relaxed);
  Status status;
  try {
    // After a rewind that recurrent layers could not follow, the state is behind the tokens.
    const auto behind = std::span<const int32_t>(tokens_).subspan(static_cast<size_t>(state_.position()));
    if (!behind.empty()) status = run_tokens(behind, 0, nullptr, false);
    if (status.is_ok()) {
      engine.moe_->start_recording();
      status = run_tokens(tokens, n_logits, logits, true);
    }
  } catch (const std::bad_alloc&) {
    status = make_error(Code::kOutOfMemory, "an allocation failed in a step of %zu tokens", tokens.size());
  }
  if (!status.is_ok()) {
    go_back(position());
    return status;
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  routing_.clear();
  routing_tokens_ = static_cast<int>(tokens.size());
  for (const std::vector<int>& layer : engine.moe_->recorded())
    routing_.insert(routing_.end(), layer.begin(), layer.end());
  return Status::ok();
}

// The state goes to position n, or to one before it from which the next eval catches up.
void Session::go_back(int n) {
  drafter_rows_ = std::min(drafter_rows_, n);
  n = std::min(n, state_.position());
  std::erase_if(checkpoints_, [n](const Checkpoint& c) { return c.position > n; });
  if (state_.can_rewind(n)) {
    state_.rewind(n);
    return;
  }
  if (checkpoints_.empty()) {
    state_.reset();
  } else {
    state_.restore_recurrent(checkpoints_.back().recurrent.data(), checkpoints_.back().position);
  }
}

Status Session::rewind(int n) {
  if (n < 0 || n > position()) {
    return make_error(Code::kInvalidArgument, "cannot rewind to %d tokens; expected 0 to %d", n, position());
  }
  const std::lock_guard lock(engine_->mutex_);
  if (n == position()) return Status::ok();
  drafter_rows_ = std::min(drafter_rows_, n);
  if (n < state_.position()) go_back(n);
  tokens_.resize(static_cast<size_t>(n));
  return Status::ok();
}

Status Session::attach_drafter(std::shared_ptr<const Drafter> drafter) {
  const std::lock_guard lock(engine_->mutex_);
  if (drafter == drafter_) return Status::ok();
  State state;
  if (drafter != nullptr) {
    const DraftModel& model = drafter->model;
    LES_RETURN_IF_ERROR(
        state.allocate(model.state_spec(), engine_->options_.kv_type, engine_->context() + model.block_size));
  }
  draft_state_ = std::move(state);
  drafter_ = std::move(drafter);
  drafter_rows_ = 0;
  return Status::ok();
}

Status Session::draft(int anchor, int n_tokens, bool wants_trace, DraftResult* result) {
  const std::lock_guard lock(engine_->mutex_);
  if (drafter_ == nullptr) return make_error(Code::kInvalidArgument, "the session has no drafter");
  const DraftModel& model = drafter_->model;
  if (n_tokens < 1 || n_tokens > model.max_tokens()) {
    return make_error(Code::kInvalidArgument, "%d tokens asked of the drafter; expected 1 to %d", n_tokens,
                      model.max_tokens());
  }
  if (anchor < 0 || anchor >= model.n_vocab) {
    return make_error(Code::kInvalidArgument, "token %d is out of range; expected 0 to %d", anchor, model.n_vocab - 1);
  }
  if (drafter_rows_ != position()) {
    return make_error(Code::kInvalidArgument, "the drafter has seen %d of %d tokens", drafter_rows_, position());
  }
  DraftRequest request;
  request.anchor = anchor;
  request.position = position();
  request.n_tokens = n_tokens;
  request.embed = drafter_->own_embed ? &drafter_->own_embed : &engine_->embed_;
  request.head = &engine_->graph_->head();
  request.wants_trace = wants_trace;
  try {
    return draft_block(model, engine_->exec_, draft_state_, request, result);
  } catch (const std::bad_alloc&) {
    return make_error(Code::kOutOfMemory, "an allocation failed while drafting");
  }
}

void Session::keep_checkpoint() {
  if (!state_.has_recurrent()) return;
  if (checkpoints_.size() == kCheckpoints) checkpoints_.erase(checkpoints_.begin());
  Checkpoint& checkpoint = checkpoints_.emplace_back();
  checkpoint.position = state_.position();
  checkpoint.recurrent.resize(state_.n_recurrent_floats());
  state_.copy_recurrent(checkpoint.recurrent.data());
}

}  // namespace les

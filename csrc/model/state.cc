#include "model/state.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"

namespace les {

uint64_t kv_value_bytes(KvType type, uint64_t n) {
  switch (type) {
    case KvType::kF32: return n * 4;
    case KvType::kF16: return n * 2;
    case KvType::kQ8_0: return (n + 31) / 32 * 34;
  }
  return 0;
}

namespace {

// Every layer's part starts on a cache line.
uint64_t kv_layer_bytes(const LayerStateSpec& layer, KvType type, int context) {
  const uint64_t k =
      align_up(kv_value_bytes(type, static_cast<uint64_t>(layer.dim_k)) * static_cast<uint64_t>(context), 64);
  const uint64_t v =
      align_up(kv_value_bytes(type, static_cast<uint64_t>(layer.dim_v)) * static_cast<uint64_t>(context), 64);
  return static_cast<uint64_t>(layer.n_kv_heads) * (k + v);
}

uint64_t recurrent_layer_floats(const LayerStateSpec& layer) {
  if (layer.n_recurrent == 0) return 0;
  return align_up(2 * static_cast<uint64_t>(layer.n_recurrent) +
                      static_cast<uint64_t>(kLogTokens) * static_cast<uint64_t>(layer.n_log),
                  16);
}

}  // namespace

uint64_t kv_cache_bytes(const StateSpec& spec, KvType type, int context) {
  uint64_t sum = 0;
  for (const LayerStateSpec& layer : spec) sum += kv_layer_bytes(layer, type, context);
  return sum;
}

uint64_t recurrent_bytes(const StateSpec& spec) {
  uint64_t sum = 0;
  for (const LayerStateSpec& layer : spec) sum += recurrent_layer_floats(layer) * sizeof(float);
  return sum;
}

Status State::allocate(const StateSpec& spec, KvType type, int context) {
  spec_ = spec;
  kv_type_ = type;
  context_ = context;
  LES_ASSIGN_OR_RETURN(kv_buffer_, make_buffer(kv_cache_bytes(spec, type, context)));
  LES_ASSIGN_OR_RETURN(recurrent_buffer_, make_buffer(recurrent_bytes(spec)));
  kv_.assign(spec.size(), {});
  recurrent_.assign(spec.size(), {});
  n_recurrent_floats_ = 0;
  uint8_t* kv_at = kv_buffer_.data();
  auto* recurrent_at = recurrent_buffer_.as<float>();
  for (size_t l = 0; l < spec.size(); ++l) {
    const LayerStateSpec& layer = spec[l];
    KvLayer& kv = kv_[l];
    kv.k_row_bytes = kv_value_bytes(type, static_cast<uint64_t>(layer.dim_k));
    kv.v_row_bytes = kv_value_bytes(type, static_cast<uint64_t>(layer.dim_v));
    kv.k_head_bytes = align_up(kv.k_row_bytes * static_cast<size_t>(context), 64);
    kv.v_head_bytes = align_up(kv.v_row_bytes * static_cast<size_t>(context), 64);
    kv.k = kv_at;
    kv.v = kv_at + kv.k_head_bytes * static_cast<size_t>(layer.n_kv_heads);
    kv_at += kv_layer_bytes(layer, type, context);
    if (layer.n_recurrent == 0) continue;
    RecurrentLayer& r = recurrent_[l];
    r.current = recurrent_at;
    r.base = r.current + layer.n_recurrent;
    r.log = r.base + layer.n_recurrent;
    recurrent_at += recurrent_layer_floats(layer);
    n_recurrent_floats_ += static_cast<size_t>(layer.n_recurrent);
  }
  reset();
  return Status::ok();
}

void State::reset() {
  position_ = 0;
  for (size_t l = 0; l < spec_.size(); ++l) {
    RecurrentLayer& r = recurrent_[l];
    if (r.current == nullptr) continue;
    std::fill_n(r.current, spec_[l].n_recurrent, 0.0f);
    std::fill_n(r.base, spec_[l].n_recurrent, 0.0f);
    r.base_position = r.n_logged = r.current_position = 0;
  }
}

void State::advance(int layer, const float* log_rows, int n, const RunFn& run) {
  RecurrentLayer& r = recurrent_[static_cast<size_t>(layer)];
  const auto n_log = static_cast<size_t>(spec_[static_cast<size_t>(layer)].n_log);
  const size_t state_bytes = static_cast<size_t>(spec_[static_cast<size_t>(layer)].n_recurrent) * sizeof(float);
  if (r.current_position != position_) {
    std::memcpy(r.current, r.base, state_bytes);
    if (r.n_logged > 0) run(r.current, r.log, r.n_logged, -1);
  }
  int head = 0;
  if (r.n_logged + n > kLogTokens) {
    // The log is full: the base moves up, to the start of the step or as near to its end as the log is long.
    head = std::max(0, n - kLogTokens);
    if (head > 0) run(r.current, log_rows, head, 0);
    std::memcpy(r.base, r.current, state_bytes);
    r.base_position = position_ + head;
    r.n_logged = 0;
  }
  const float* rest = log_rows + static_cast<size_t>(head) * n_log;
  run(r.current, rest, n - head, head);
  std::memcpy(r.log + static_cast<size_t>(r.n_logged) * n_log, rest,
              static_cast<size_t>(n - head) * n_log * sizeof(float));
  r.n_logged += n - head;
  r.current_position = position_ + n;
}

bool State::can_rewind(int n) const {
  if (n < 0 || n > context_) return false;
  return std::all_of(recurrent_.begin(), recurrent_.end(), [n](const RecurrentLayer& r) {
    return r.current == nullptr || (r.base_position <= n && n <= r.base_position + r.n_logged);
  });
}

void State::rewind(int n) {
  position_ = n;
  for (RecurrentLayer& r : recurrent_) {
    if (r.current == nullptr) continue;
    r.n_logged = n - r.base_position;
    if (r.current_position > n) r.current_position = -1;  // rebuilt at the next advance
  }
}

void State::copy_recurrent(float* to) {
  for (size_t l = 0; l < spec_.size(); ++l) {
    if (recurrent_[l].current == nullptr) continue;
    std::copy_n(recurrent_[l].current, spec_[l].n_recurrent, to);
    to += spec_[l].n_recurrent;
  }
}

void State::restore_recurrent(const float* from, int position) {
  position_ = position;
  for (size_t l = 0; l < spec_.size(); ++l) {
    RecurrentLayer& r = recurrent_[l];
    if (r.current == nullptr) continue;
    std::copy_n(from, spec_[l].n_recurrent, r.current);
    std::copy_n(from, spec_[l].n_recurrent, r.base);
    from += spec_[l].n_recurrent;
    r.base_position = r.current_position = position;
    r.n_logged = 0;
  }
}

Status State::for_each_piece(const std::function<Status(void*, uint64_t)>& fn) {
  const auto n = static_cast<uint64_t>(position_);
  for (size_t l = 0; l < spec_.size(); ++l) {
    const KvLayer& kv = kv_[l];
    for (int h = 0; h < spec_[l].n_kv_heads && n > 0; ++h) {
      LES_RETURN_IF_ERROR(fn(kv.k + static_cast<size_t>(h) * kv.k_head_bytes, n * kv.k_row_bytes));
      LES_RETURN_IF_ERROR(fn(kv.v + static_cast<size_t>(h) * kv.v_head_bytes, n * kv.v_row_bytes));
    }
    RecurrentLayer& r = recurrent_[l];
    if (r.current == nullptr) continue;
    for (int* number : {&r.base_position, &r.n_logged, &r.current_position}) {
      LES_RETURN_IF_ERROR(fn(number, sizeof(*number)));
    }
    const uint64_t n_floats = 2 * static_cast<uint64_t>(spec_[l].n_recurrent) +
                              static_cast<uint64_t>(kLogTokens) * static_cast<uint64_t>(spec_[l].n_log);
    LES_RETURN_IF_ERROR(fn(r.current, n_floats * sizeof(float)));
  }
  return Status::ok();
}

Status State::check() const {
  for (const RecurrentLayer& r : recurrent_) {
    if (r.current == nullptr) continue;
    const bool is_sane = r.n_logged >= 0 && r.n_logged <= kLogTokens && r.base_position >= 0 &&
                         r.base_position + r.n_logged == position_;
    if (!is_sane) {
      return make_error(Code::kCorrupt, "recurrent state at %d with %d logged tokens; expected to end at %d",
                        r.base_position, r.n_logged, position_);
    }
  }
  return Status::ok();
}

}  // namespace les

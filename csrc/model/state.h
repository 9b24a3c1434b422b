// What a session remembers of its tokens: keys and values of attention layers, and the state of recurrent ones.
// Knows no maths: recurrent layers hand in the function that advances a state by one token.
// Thread-safety: one session, one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/arena.h"
#include "base/status.h"
#include "kernels/kernels.h"

namespace les {

// What a family needs for one layer. A layer has keys and values, a recurrent state, or neither.
struct LayerStateSpec {
  int n_kv_heads = 0, dim_k = 0, dim_v = 0;  // n_kv_heads 0: no attention
  int n_recurrent = 0;                       // floats of state; 0: not recurrent
  int n_log = 0;                             // floats of one token's input to the recurrence
};

using StateSpec = std::vector<LayerStateSpec>;

uint64_t kv_value_bytes(KvType type, uint64_t n);   // bytes of n cached values
uint64_t kv_cache_bytes(const StateSpec& spec, KvType type, int context);
uint64_t recurrent_bytes(const StateSpec& spec);

// Keys and values of one layer: [n_kv_heads, context, dim].
struct KvLayer {
  uint8_t* k = nullptr;
  uint8_t* v = nullptr;
  size_t k_row_bytes = 0, v_row_bytes = 0;    // one position of one head
  size_t k_head_bytes = 0, v_head_bytes = 0;  // all positions of one head
};

// Tokens that can be taken back without recomputing: the widest draft and its anchor fit.
constexpr int kLogTokens = 24;

// A recurrent layer's state. `base` is the state at base_position; `log` holds the inputs of the n_logged tokens after
// it, so that each of those positions can be made again by replay. No snapshot per position is ever kept.
struct RecurrentLayer {
  float* current = nullptr;  // [n_recurrent], at current_position
  float* base = nullptr;     // [n_recurrent]
  float* log = nullptr;      // [kLogTokens, n_log]
  int base_position = 0, n_logged = 0, current_position = 0;
};

class State {
 public:
  Status allocate(const StateSpec& spec, KvType type, int context);

  int context() const { return context_; }
  KvType kv_type() const { return kv_type_; }
  int position() const { return position_; }
  const KvLayer& kv(int layer) const { return kv_[static_cast<size_t>(layer)]; }
  const StateSpec& spec() const { return spec_; }
  bool has_recurrent() const { return n_recurrent_floats_ > 0; }

  // Advances recurrent layer `layer` by the n tokens of a step whose inputs are log_rows [n, n_log].
  // run(state, rows, count, first_token) applies `count` rows in order to the state; first_token is the index of the
  // first within the step, or -1 in a replay, whose outputs nobody wants.
  using RunFn = std::function<void(float* state, const float* rows, int count, int first_token)>;
  void advance(int layer, const float* log_rows, int n, const RunFn& run);

  // The step is complete: every layer has seen n more tokens.
  void commit(int n) { position_ += n; }

  // Recurrent layers can be at position n again by replay; keys and values always can. Also true after a step that
  // failed half-way, for the position before it, unless the step was longer than the log.
  bool can_rewind(int n) const;
  void rewind(int n);  // needs can_rewind(n)
  void reset();

  // A copy of every recurrent state, at the current position.
  size_t n_recurrent_floats() const { return n_recurrent_floats_; }
  void copy_recurrent(float* to);                      // needs no stale layer: call after commit
  void restore_recurrent(const float* from, int position);

  // The bytes that make up the state, piece by piece, for save and load. To load: set_position first, then fill every
  // piece, then check().
  Status for_each_piece(const std::function<Status(void* data, uint64_t size_bytes)>& fn);
  void set_position(int position) { position_ = position; }
  Status check() const;

 private:
  StateSpec spec_;
  KvType kv_type_ = KvType::kF16;
  int context_ = 0;
  int position_ = 0;
  size_t n_recurrent_floats_ = 0;
  Buffer kv_buffer_, recurrent_buffer_;
  std::vector<KvLayer> kv_;
  std::vector<RecurrentLayer> recurrent_;
};

}  // namespace les

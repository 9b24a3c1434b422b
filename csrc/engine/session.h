// One timeline of tokens over an engine.
// Thread-safety: cancel may be called from any thread; everything else from one thread at a time.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/drafter.h"
#include "engine/engine.h"
#include "model/state.h"

namespace les {

class Session {
 public:
  explicit Session(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int position() const { return static_cast<int>(tokens_.size()); }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  const Engine& engine() const { return *engine_; }

  // Runs the tokens; logits [n_logits, n_vocab] of the last n_logits of them. On failure the session is as before.
  Status eval(std::span<const int32_t> tokens, int n_logits, float* logits);

  // Experts of the last eval: [MoE layers, n, n_used], row by row; n is the number of its tokens.
  const std::vector<int32_t>& routing() const { return routing_; }
  int routing_tokens() const { return routing_tokens_; }

  // Keeps the first n tokens. What a recurrent layer cannot take back is computed again at the next eval.
  Status rewind(int n);

  // Lets a drafter see what the model computes from here on. Tokens that it did not see must be computed again: rewind
  // to drafter_rows(). Null: none.
  Status attach_drafter(std::shared_ptr<const Drafter> drafter);
  int drafter_rows() const { return drafter_rows_; }   // tokens, from the first on, that the drafter has seen
  // Guesses what follows all tokens and then the anchor, which the session does not hold yet.
  Status draft(int anchor, int n_tokens, bool wants_trace, DraftResult* result);

  // Stops a running eval, which then fails with kCancelled.
  void cancel();

  Status save(const std::string& path);
  Status load(const std::string& path);

 private:
  friend class Engine;
  struct Checkpoint {
    int position = 0;
    std::vector<float> recurrent;
  };

  Status check_eval(std::span<const int32_t> tokens, int n_logits) const;
  // Runs tokens_[state position, n) and what follows; the engine's lock is held.
  Status run_tokens(std::span<const int32_t> tokens, int n_logits, float* logits, bool is_new);
  Status run_chunk(std::span<const int32_t> tokens, int n_logits, float* logits);
  void go_back(int n);
  void keep_checkpoint();
  uint64_t fingerprint() const;

  std::shared_ptr<Engine> engine_;
  State state_;
  std::vector<int32_t> tokens_;          // all of them; the state may be behind after a rewind
  std::vector<Checkpoint> checkpoints_;  // ascending positions
  std::shared_ptr<const Drafter> drafter_;
  State draft_state_;
  int drafter_rows_ = 0;
  std::vector<int32_t> routing_;
  int routing_tokens_ = 0;
  std::atomic<bool> is_cancelled_{false};
  bool is_counted_ = false;
};

}  // namespace les

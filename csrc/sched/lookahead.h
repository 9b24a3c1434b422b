// Which guesses are worth a read. Pure bookkeeping: it learns how often a guess of each rank comes true, and keeps
// those whose read more likely saves time than costs it.
// Thread-safety: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace les {

struct Guess {
  uint32_t expert = 0;
  uint32_t rank = 0;     // among its token's guesses, most likely first
};

class Lookahead {
 public:
  explicit Lookahead(size_t n_layers) : predicted_(n_layers) {}

  // Remembers a prediction for `layer`; is_resident[i]: guess i needs no read.
  void predict(uint32_t layer, std::span<const Guess> guesses, const std::vector<bool>& is_resident);
  // The layer's real choice: what was predicted is scored. Returns how many chosen experts had been predicted, or -1
  // without a prediction.
  int settle(uint32_t layer, std::span<const uint32_t> chosen);

  // The chance that an absent expert guessed at this rank is chosen, as measured so far.
  float chance(uint32_t rank) const;
  // A read that is never used delays the next demand read by up to its own length; one that is used saves as much.
  bool is_worth_reading(uint32_t rank) const { return chance(rank) >= kMinChance; }

  static constexpr size_t kRanks = 64;
  static constexpr float kMinChance = 0.5f;

 private:
  struct Prediction {
    std::vector<Guess> guesses;
    std::vector<bool> is_resident;
  };
  std::vector<Prediction> predicted_;
  // Decayed counts; they start from a belief in the first ranks, so that there is something to learn from.
  std::array<float, kRanks> n_right_{}, n_tried_{};
};

}  // namespace les

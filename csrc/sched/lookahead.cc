#include "sched/lookahead.h"

#include <algorithm>

namespace les {

namespace {

constexpr float kDecay = 0.995f;      // per prediction: a memory of about 200
constexpr float kPriorTried = 4;
constexpr float kPriorChance = 0.6f;

}  // namespace

void Lookahead::predict(uint32_t layer, std::span<const Guess> guesses, const std::vector<bool>& is_resident) {
  Prediction& prediction = predicted_[layer];
  prediction.experts.clear();
  for (const Guess& guess : guesses) prediction.experts.push_back(guess.expert);
  prediction.is_resident = is_resident;
}

int Lookahead::settle(uint32_t layer, std::span<const uint32_t> chosen) {
  Prediction& prediction = predicted_[layer];
  if (prediction.experts.empty()) return -1;
  int n_predicted = 0;
  for (size_t rank = 0; rank < prediction.experts.size(); ++rank) {
    const bool is_right = std::find(chosen.begin(), chosen.end(), prediction.experts[rank]) != chosen.end();
    n_predicted += is_right ? 1 : 0;
    if (prediction.is_resident[rank]) continue;
    const size_t r = std::min(rank, kRanks - 1);
    n_tried_[r] = n_tried_[r] * kDecay + 1;
    n_right_[r] = n_right_[r] * kDecay + (is_right ? 1.0f : 0.0f);
  }
  prediction.experts.clear();
  return n_predicted;
}

float Lookahead::chance(size_t rank) const {
  const size_t r = std::min(rank, kRanks - 1);
  return (n_right_[r] + kPriorTried * kPriorChance) / (n_tried_[r] + kPriorTried);
}

}  // namespace les

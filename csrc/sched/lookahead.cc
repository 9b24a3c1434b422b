#include "sched/lookahead.h"

#include <algorithm>

namespace les {

namespace {

constexpr float kDecay = 0.995f;      // per prediction: a memory of about 200
constexpr float kPriorTried = 4;
constexpr float kPriorChance = 0.6f;

}  // namespace

void Lookahead::predict(uint32_t layer, std::span<const Guess> guesses, const std::vector<bool>& is_resident) {
  predicted_[layer] = {{guesses.begin(), guesses.end()}, is_resident};
}

int Lookahead::settle(uint32_t layer, std::span<const uint32_t> chosen) {
  Prediction& prediction = predicted_[layer];
  if (prediction.guesses.empty()) return -1;
  const auto is_chosen = [&](uint32_t expert) {
    return std::find(chosen.begin(), chosen.end(), expert) != chosen.end();
  };
  for (size_t i = 0; i < prediction.guesses.size(); ++i) {
    if (prediction.is_resident[i]) continue;
    const size_t r = std::min<size_t>(prediction.guesses[i].rank, kRanks - 1);
    n_tried_[r] = n_tried_[r] * kDecay + 1;
    n_right_[r] = n_right_[r] * kDecay + (is_chosen(prediction.guesses[i].expert) ? 1.0f : 0.0f);
  }
  const auto was_guessed = [&](uint32_t expert) {
    return std::any_of(prediction.guesses.begin(), prediction.guesses.end(),
                       [&](const Guess& g) { return g.expert == expert; });
  };
  const auto n_predicted = std::count_if(chosen.begin(), chosen.end(), was_guessed);
  prediction.guesses.clear();
  return static_cast<int>(n_predicted);
}

float Lookahead::chance(uint32_t rank) const {
  const size_t r = std::min<size_t>(rank, kRanks - 1);
  return (n_right_[r] + kPriorTried * kPriorChance) / (n_tried_[r] + kPriorTried);
}

}  // namespace les

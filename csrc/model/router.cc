#include "model/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace les {

namespace {

constexpr float kMinWeightSum =
    6.103515625e-5f;  // smallest normal half: keeps a vanishing sum from dividing to infinity

void softmax(float* x, int n) {
  const float largest = *std::max_element(x, x + n);
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] = std::exp(x[i] - largest);
  for (int i = 0; i < n; ++i) x[i] /= sum;
}

// Scores of experts outside the best groups become minus infinity; a group counts by its two best experts.
void mask_groups(const RouterSpec& spec, float* scores) {
  const int size = spec.n_expert / spec.n_group;
  std::vector<std::pair<float, int>> groups;
  for (int g = 0; g < spec.n_group; ++g) {
    float best = -std::numeric_limits<float>::infinity(), second = best;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      if (scores[e] > best) {
        second = best;
        best = scores[e];
      } else {
        second = std::max(second, scores[e]);
      }
    }
    groups.emplace_back(size > 1 ? best + second : best, g);
  }
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (int i = spec.n_group_used; i < spec.n_group; ++i) {
    const int first = groups[static_cast<size_t>(i)].second * size;
    std::fill(scores + first, scores + first + size, -std::numeric_limits<float>::infinity());
  }
}

}  // namespace

void choose_experts(const RouterSpec& spec, float* logits, const float* selection_bias, int* chosen, float* weights) {
  const int n = spec.n_expert;
  if (spec.logit_scale != 1) {
    for (int e = 0; e < n; ++e) logits[e] *= spec.logit_scale;
  }
  if (spec.gating == Gating::kSigmoid) {
    for (int e = 0; e < n; ++e) logits[e] = 1.0f / (1.0f + std::exp(-logits[e]));
  } else if (spec.gating == Gating::kSoftmax) {
    softmax(logits, n);
  }
  std::vector<float> scores(logits, logits + n);
  if (selection_bias != nullptr) {
    for (int e = 0; e < n; ++e) scores[static_cast<size_t>(e)] += selection_bias[e];
  }
  if (spec.n_group > 1) mask_groups(spec, scores.data());
  std::vector<int> order(static_cast<size_t>(n));
  for (int e = 0; e < n; ++e) order[static_cast<size_t>(e)] = e;
  std::partial_sort(order.begin(), order.begin() + spec.n_used, order.end(), [&](int a, int b) {
    const float score_a = scores[static_cast<size_t>(a)], score_b = scores[static_cast<size_t>(b)];
    return score_a != score_b ? score_a > score_b : a < b;
  });
  std::copy_n(order.begin(), spec.n_used, chosen);
  for (int i = 0; i < spec.n_used; ++i) weights[i] = logits[chosen[i]];
  if (spec.gating == Gating::kSoftmaxOfChosen) softmax(weights, spec.n_used);
  if (spec.norm_weights) {
    float sum = 0;
    for (int i = 0; i < spec.n_used; ++i) sum += weights[i];
    sum = std::max(sum, kMinWeightSum);
    for (int i = 0; i < spec.n_used; ++i) weights[i] /= sum;
  }
  for (int i = 0; i < spec.n_used; ++i) weights[i] *= spec.weights_scale;
}

}  // namespace les

#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace les {

namespace {

// The pair whose wavelength fits `rotations` times into the original context.
double corrected_pair(const RopeScaling& scaling, int n_rot, double base, double rotations) {
  return n_rot * std::log(scaling.original_context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(base));
}

}  // namespace

Rope make_rope(RopePairing pairing, int n_rot, float base, const RopeScaling& scaling, const float* pair_factors) {
  Rope rope{pairing, n_rot, scaling.attn_factor, {}};
  const bool is_yarn = scaling.type == "yarn" && scaling.original_context > 0;
  const bool is_linear = scaling.type == "linear";
  double low = 0, high = 0;
  if (is_yarn) {
    low = std::max(0.0, std::floor(corrected_pair(scaling, n_rot, base, scaling.beta_fast)));
    high = std::min(n_rot - 1.0, std::ceil(corrected_pair(scaling, n_rot, base, scaling.beta_slow)));
    rope.magnitude *= static_cast<float>(1 + 0.1 * std::log(static_cast<double>(scaling.factor)));
  }
  for (int i = 0; i < n_rot / 2; ++i) {
    double frequency = std::pow(static_cast<double>(base), -2.0 * i / n_rot);
    if (pair_factors != nullptr) frequency /= pair_factors[i];
    if (is_linear) frequency /= scaling.factor;
    if (is_yarn) {
      // Fast pairs keep their frequency, slow ones are stretched, those between are mixed.
      const double ramp = 1 - std::clamp((i - low) / std::max(0.001, high - low), 0.0, 1.0);
      frequency = frequency / scaling.factor * (1 - ramp) + frequency * ramp;
    }
    rope.frequency.push_back(frequency);
  }
  return rope;
}

void rope_angles(const Rope& rope, int position, float* cosine, float* sine) {
  for (size_t i = 0; i < rope.frequency.size(); ++i) {
    const double angle = position * rope.frequency[i];
    cosine[i] = static_cast<float>(std::cos(angle)) * rope.magnitude;
    sine[i] = static_cast<float>(std::sin(angle)) * rope.magnitude;
  }
}

void apply_rope(const Rope& rope, const float* cosine, const float* sine, float* head) {
  const int n_pairs = rope.n_rot / 2;
  const int stride = rope.pairing == RopePairing::kAdjacent ? 1 : n_pairs;
  const int step = rope.pairing == RopePairing::kAdjacent ? 2 : 1;
  for (int i = 0; i < n_pairs; ++i) {
    float* pair = head + i * step;
    const float a = pair[0], b = pair[stride];
    pair[0] = a * cosine[i] - b * sine[i];
    pair[stride] = a * sine[i] + b * cosine[i];
  }
}

}  // namespace les

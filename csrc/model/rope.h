// Rotary position encoding: plain and NeoX pairing, partial, linear, YaRN and per-pair factors.
// Thread-safety: immutable after make_rope.
#pragma once

#include <vector>

#include "model/config.h"

namespace les {

enum class RopePairing : int { kAdjacent, kHalves };  // (0,1)(2,3)…, or (0,n/2)(1,n/2+1)… ("NeoX")

struct Rope {
  RopePairing pairing = RopePairing::kHalves;
  int n_rot = 0;                // the first n_rot values of a head turn
  float magnitude = 1;          // on both sine and cosine
  std::vector<double> frequency;  // [n_rot / 2] radians per position
};

// pair_factors: null, or n_rot / 2 divisors of the frequencies (Llama 3, long-context factors).
// YaRN after Peng et al., "YaRN: Efficient Context Window Extension" (2023).
Rope make_rope(RopePairing pairing, int n_rot, float base, const RopeScaling& scaling, const float* pair_factors);

// cos/sin of one position: [n_rot / 2] each.
void rope_angles(const Rope& rope, int position, float* cosine, float* sine);

// Turns one head in place.
void apply_rope(const Rope& rope, const float* cosine, const float* sine, float* head);

}  // namespace les

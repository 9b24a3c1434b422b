// Whom to give up: pure rules over what is known of the experts in memory.
#pragma once

#include <cmath>
#include <cstdint>

namespace les {

// kShares: every layer keeps its share of the slots, and gives up its own coldest expert; layers over their share give
//          first. Immune to the flooding that gives a cache below one token's working set no hit at all under kLru.
// kLru:    the one longest unused, of all layers.
// kLfu:    the one least used, uses decaying with age, of all layers.
enum class Policy : int { kShares = 0, kLru = 1, kLfu = 2 };

// Uses count half after this many ticks (layers executed): a few tokens' worth keeps up with a change of topic.
constexpr float kHeatHalfLife = 2048;

inline float decayed(float heat, uint64_t age_ticks) {
  return heat * std::exp2(-static_cast<float>(age_ticks) / kHeatHalfLife);
}

// The smaller, the sooner it goes.
inline float keep_score(Policy policy, float heat, uint64_t last_use, uint64_t now) {
  const auto age = static_cast<float>(now - last_use);
  return policy == Policy::kLru ? -age : decayed(heat, now - last_use);
}

}  // namespace les

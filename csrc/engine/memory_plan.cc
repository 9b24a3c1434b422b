#include "engine/memory_plan.h"

#include <algorithm>

#include "base/bytes.h"

namespace les {

namespace {

constexpr int kDefaultChunk = 256;
constexpr int kShortestChunk = 16;

uint64_t fixed_bytes(const MemoryNeeds& n) {
  return n.process_bytes + n.trunk_bytes + n.tokenizer_bytes + n.reader_bytes +
         static_cast<uint64_t>(n.n_sessions) * (n.kv_bytes + n.state_bytes);
}

uint64_t scratch_bytes(const MemoryNeeds& n, int chunk) {
  return n.scratch_fixed_bytes + static_cast<uint64_t>(chunk) * n.scratch_per_token_bytes;
}

uint64_t slots_bytes(const MemoryNeeds& n, const std::vector<uint32_t>& slots) {
  uint64_t sum = 0;
  for (size_t i = 0; i < slots.size(); ++i) sum += slots[i] * n.classes[i].slot_bytes;
  return sum;
}

// A long prompt's chunk may take a quarter of what is left beside the fixed parts; the cache needs the rest.
int choose_chunk(const MemoryNeeds& needs, uint64_t left_bytes) {
  int chunk = kDefaultChunk;
  while (chunk > kShortestChunk && scratch_bytes(needs, chunk) > left_bytes / 4) chunk /= 2;
  return chunk;
}

}  // namespace

MemoryPlan plan_memory(const MemoryNeeds& needs, std::optional<uint64_t> budget_bytes, int chunk) {
  MemoryPlan plan;
  plan.needs = needs;
  plan.budget_bytes = budget_bytes;
  // Two slots at least: one computes while the other is read.
  const uint32_t min_slots = std::max(2u, needs.n_used);
  const int shortest = chunk > 0 ? chunk : kShortestChunk;
  const uint64_t fixed = fixed_bytes(needs);
  const uint64_t least_cache = slots_bytes(needs, plan_slots(needs.classes, 0, min_slots));
  const uint64_t usual_scratch = scratch_bytes(needs, chunk > 0 ? chunk : kDefaultChunk);
  plan.floor_bytes = fixed + scratch_bytes(needs, shortest) + least_cache;
  plan.full_bytes = fixed + usual_scratch + needs.expert_bytes;
  if (needs.n_experts_total > 0) {
    const uint64_t one_token = needs.expert_bytes / needs.n_experts_total * needs.experts_per_token;
    plan.recommended_bytes =
        fixed + usual_scratch + std::max(needs.expert_bytes / 2, std::min(one_token * 2, needs.expert_bytes));
  } else {
    plan.recommended_bytes = plan.full_bytes;
  }
  plan.recommended_bytes = std::max(plan.recommended_bytes, plan.floor_bytes);

  const uint64_t budget = budget_bytes.value_or(plan.full_bytes);
  plan.fits = budget >= plan.floor_bytes;
  if (!plan.fits) {
    plan.message = "a budget of " + format_bytes(budget) + " is below the floor of " + format_bytes(plan.floor_bytes) +
                   " (" + std::to_string(plan.floor_bytes) + " bytes); give at least that, or a smaller context";
  }
  const uint64_t left = budget > fixed ? budget - fixed : 0;
  plan.chunk = chunk > 0 ? chunk : choose_chunk(needs, left);
  if (plan.chunk > kShortestChunk && chunk == 0 && scratch_bytes(needs, plan.chunk) + least_cache > left) {
    plan.chunk = kShortestChunk;
  }
  plan.scratch_bytes = scratch_bytes(needs, plan.chunk);
  const uint64_t for_cache = left > plan.scratch_bytes ? left - plan.scratch_bytes : 0;
  plan.slots_per_class = plan_slots(needs.classes, for_cache, min_slots);
  plan.cache_bytes = slots_bytes(needs, plan.slots_per_class);
  for (const uint32_t n : plan.slots_per_class) plan.n_slots += n;
  plan.total_bytes = fixed + plan.scratch_bytes + plan.cache_bytes;
  if (plan.fits) {
    if (needs.n_experts_total == 0) {
      plan.message = "a dense model, all of it in memory";
    } else if (plan.n_slots >= needs.n_experts_total) {
      plan.message = "all experts stay in memory";
    } else if (plan.n_slots < needs.experts_per_token) {
      plan.message = "less than the experts of one token fit: most are read anew for every token";
    } else {
      plan.message = std::to_string(plan.n_slots) + " of " + std::to_string(needs.n_experts_total) +
                     " experts fit; the others are streamed";
    }
  }
  return plan;
}

std::string format_bytes(uint64_t bytes) {
  if (bytes >= kGiB) return format_text("%.2f GiB", static_cast<double>(bytes) / static_cast<double>(kGiB));
  if (bytes >= kMiB) return format_text("%.1f MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
  return format_text("%.1f KiB", static_cast<double>(bytes) / static_cast<double>(kKiB));
}

}  // namespace les

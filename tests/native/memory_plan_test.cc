#include <doctest/doctest.h>

#include "base/bytes.h"
#include "engine/memory_plan.h"

namespace les {
namespace {

// 40 layers of 256 experts of 1.35 MB, as the 35B model has them.
MemoryNeeds phone_model() {
  std::vector<ExpertLayer> layers(40);
  for (ExpertLayer& layer : layers) {
    layer.has_experts = true;
    layer.n_expert = 256;
    layer.slot_bytes = 1'351'680;
  }
  MemoryNeeds needs;
  needs.process_bytes = 72 * kMiB;
  needs.trunk_bytes = 1200 * kMiB;
  needs.kv_bytes = 160 * kMiB;
  needs.state_bytes = 200 * kMiB;
  needs.scratch_fixed_bytes = 4 * kMiB;
  needs.scratch_per_token_bytes = 360 * kKiB;
  needs.classes = plan_size_classes(layers);
  needs.n_experts_total = 40 * 256;
  needs.experts_per_token = 320;
  needs.n_used = 8;
  for (const SizeClass& c : needs.classes) needs.expert_bytes += c.slot_bytes * c.n_experts;
  return needs;
}

TEST_CASE("the floor is exact: it fits, and one byte less does not") {
  const MemoryNeeds needs = phone_model();
  const uint64_t floor_bytes = plan_memory(needs, std::nullopt, 0).floor_bytes;
  const MemoryPlan at_floor = plan_memory(needs, floor_bytes, 0);
  CHECK(at_floor.fits);
  CHECK(at_floor.n_slots >= 8);
  CHECK(at_floor.total_bytes <= floor_bytes);
  const MemoryPlan below = plan_memory(needs, floor_bytes - 1, 0);
  CHECK_FALSE(below.fits);
  CHECK(below.message.find(std::to_string(floor_bytes)) != std::string::npos);
}

TEST_CASE("every budget is kept, and more of it never means fewer experts") {
  const MemoryNeeds needs = phone_model();
  const MemoryPlan unlimited = plan_memory(needs, std::nullopt, 0);
  CHECK(unlimited.n_slots == needs.n_experts_total);
  uint32_t last = 0;
  for (uint64_t budget = unlimited.floor_bytes; budget < 20 * kGiB; budget += 100 * kMiB) {
    const MemoryPlan plan = plan_memory(needs, budget, 256);
    if (!plan.fits) continue;
    CHECK(plan.total_bytes <= budget);
    CHECK(plan.n_slots >= last);
    last = plan.n_slots;
  }
  CHECK(last == needs.n_experts_total);
}

TEST_CASE("3 GiB hold the 18 to 24 experts a layer that the arithmetic of the phone promises") {
  const MemoryPlan plan = plan_memory(phone_model(), 3 * kGiB, 0);
  CHECK(plan.fits);
  CHECK(plan.n_slots / 40 >= 18);
  CHECK(plan.n_slots / 40 <= 27);
}

}  // namespace
}  // namespace les

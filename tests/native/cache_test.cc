#include <doctest/doctest.h>

#include <set>

#include "base/bytes.h"
#include "cache/expert_cache.h"

namespace les {
namespace {

std::vector<ExpertLayer> make_layers(int n_layers, uint32_t n_expert, uint64_t slot_bytes) {
  std::vector<ExpertLayer> layers(static_cast<size_t>(n_layers));
  for (ExpertLayer& layer : layers) {
    layer.has_experts = true;
    layer.n_expert = n_expert;
    layer.slot_bytes = slot_bytes;
  }
  return layers;
}

// Uses an expert as the scheduler does, with a read that ends at once. True for a hit.
bool use(ExpertCache& cache, ExpertKey key) {
  int slot = cache.find(key);
  const bool is_hit = slot >= 0;
  if (!is_hit) {
    slot = cache.take(key, false);
    REQUIRE(slot >= 0);
    cache.set_ready(slot);
  }
  cache.touch(slot);
  return is_hit;
}

TEST_CASE("layers of nearly one size share a class, others get their own") {
  std::vector<ExpertLayer> layers = make_layers(6, 8, 100 * kPageBytes);
  layers[1].slot_bytes = 97 * kPageBytes;
  layers[2].slot_bytes = 50 * kPageBytes;
  layers[3].has_experts = false;
  const auto classes = plan_size_classes(layers);
  REQUIRE(classes.size() == 2);
  CHECK(classes[0].layers.size() == 4);
  CHECK(classes[0].slot_bytes == 100 * kPageBytes);
  CHECK(classes[1].layers == std::vector<uint32_t>{2});
  for (const SizeClass& c : classes) {
    for (const uint32_t l : c.layers) CHECK(layers[l].slot_bytes * 20 >= c.slot_bytes * 19);
  }
}

TEST_CASE("slots never cost more than the bytes, and never exceed the experts") {
  std::vector<ExpertLayer> layers = make_layers(4, 8, 10 * kPageBytes);
  layers[0].slot_bytes = 3 * kPageBytes;
  const auto classes = plan_size_classes(layers);
  for (uint64_t pages = 20; pages < 400; pages += 7) {
    const auto slots = plan_slots(classes, pages * kPageBytes, 2);
    uint64_t bytes = 0;
    for (size_t i = 0; i < slots.size(); ++i) {
      bytes += slots[i] * classes[i].slot_bytes;
      CHECK(slots[i] >= 2);
      CHECK(slots[i] <= classes[i].n_experts);
    }
    if (pages >= 26) CHECK(bytes <= pages * kPageBytes);
  }
  const auto all = plan_slots(classes, 10000 * kPageBytes, 2);
  CHECK(all == std::vector<uint32_t>{24, 8});
}

TEST_CASE("a cache below one token's working set: plain LRU gets nothing, shares get something") {
  const int n_layers = 6;
  uint64_t hits[2] = {0, 0};
  for (const Policy policy : {Policy::kLru, Policy::kShares}) {
    ExpertCache cache;
    const auto layers = make_layers(n_layers, 8, kPageBytes);
    REQUIRE(cache.allocate(layers, {9}, policy).is_ok());  // a token needs 12
    for (int token = 0; token < 50; ++token) {
      for (uint32_t l = 0; l < n_layers; ++l) {
        cache.next_tick();
        // One expert of each layer is always used, the other changes.
        hits[static_cast<int>(policy == Policy::kShares)] += use(cache, {l, 0}) ? 1 : 0;
        use(cache, {l, 1 + static_cast<uint32_t>(token) % 7});
      }
    }
  }
  CHECK(hits[0] == 0);
  CHECK(hits[1] > 100);
}

TEST_CASE("pinned slots and slots being read stay") {
  ExpertCache cache;
  REQUIRE(cache.allocate(make_layers(1, 4, kPageBytes), {2}, Policy::kShares).is_ok());
  const int a = cache.take({0, 0}, false);
  const int b = cache.take({0, 1}, false);
  cache.set_ready(a);
  cache.slot(a).pins = 1;
  CHECK(cache.take({0, 2}, false) == -1);
  cache.slot(a).pins = 0;
  CHECK(cache.take({0, 2}, false) == a);
  CHECK(cache.find({0, 0}) == -1);
  CHECK(cache.find({0, 1}) == b);
}

TEST_CASE("a guess pushes out neither a guess nor what was just used") {
  ExpertCache cache;
  REQUIRE(cache.allocate(make_layers(1, 8, kPageBytes), {2}, Policy::kShares).is_ok());
  cache.next_tick();
  use(cache, {0, 0});
  const int guess = cache.take({0, 1}, true);
  cache.set_ready(guess);
  cache.next_tick();
  CHECK(cache.take({0, 2}, true) == -1);
  for (int i = 0; i < 5; ++i) cache.next_tick();
  CHECK(cache.take({0, 2}, true) >= 0);
  CHECK(cache.find({0, 1}) == guess);
  CHECK(cache.find({0, 0}) == -1);
}

TEST_CASE("a smaller budget keeps the warmest experts, a larger one keeps all") {
  ExpertCache cache;
  const auto layers = make_layers(2, 8, kPageBytes);
  REQUIRE(cache.allocate(layers, {8}, Policy::kShares).is_ok());
  for (int round = 0; round < 4; ++round) {
    for (uint32_t e = 0; e < 4; ++e) {
      for (uint32_t l = 0; l < 2; ++l) {
        cache.next_tick();
        if (e < 2 || round == 0) {
          use(cache, {l, e});
          cache.slot(cache.find({l, e})).data[0] = static_cast<uint8_t>(16 * l + e);
        }
      }
    }
  }
  REQUIRE(cache.resize({4}).is_ok());
  CHECK(cache.n_slots() == 4);
  for (uint32_t l = 0; l < 2; ++l) {
    for (uint32_t e = 0; e < 2; ++e) {
      REQUIRE(cache.find({l, e}) >= 0);
      CHECK(cache.slot(cache.find({l, e})).data[0] == 16 * l + e);
    }
  }
  REQUIRE(cache.resize({16}).is_ok());
  CHECK(cache.holds_everything());
  std::set<uint8_t*> places;
  for (uint32_t l = 0; l < 2; ++l) {
    for (uint32_t e = 0; e < 8; ++e) {
      use(cache, {l, e});
      places.insert(cache.slot(cache.find({l, e})).data);
    }
  }
  CHECK(places.size() == 16);
  CHECK(cache.slot(cache.find({1, 1})).data[0] == 17);
}

}  // namespace
}  // namespace les

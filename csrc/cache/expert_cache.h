// Experts in memory: slots, who is in them, and whom to give up for the next. Reads nothing and waits for nothing.
// Thread-safety: one thread. Readers fill a slot's bytes while it is kReading; nobody else touches them then.
//
// 1. A slot is kEmpty, kReading or kReady; it goes round in that order, or from kReading back to kEmpty.
// 2. An expert is in at most one slot. Slots of different size classes never mix.
// 3. A slot with pins, or one that is being read, is never given up.
#pragma once

#include <cstdint>
#include <vector>

#include "base/arena.h"
#include "base/status.h"
#include "cache/policy.h"
#include "store/expert_store.h"

namespace les {

enum class SlotState : uint8_t { kEmpty, kReading, kReady };

struct Slot {
  uint8_t* data = nullptr;        // null: given back to the system by a smaller budget
  uint32_t class_idx = 0;
  SlotState state = SlotState::kEmpty;
  ExpertKey key;
  int pins = 0;
  uint64_t last_use = 0;          // tick of the last use
  float heat = 0;                 // uses, decayed by age; of the time of last_use
  bool is_unused_guess = false;   // read ahead and not used so far
};

// Layers whose experts have (nearly) the same size share slots.
struct SizeClass {
  uint64_t slot_bytes = 0;
  std::vector<uint32_t> layers;
  uint32_t n_experts = 0;         // of all its layers
};

// Sizes within one part in twenty fall into one class, so that no more than that is wasted.
std::vector<SizeClass> plan_size_classes(const std::vector<ExpertLayer>& layers);

// How many slots of each class `cache_bytes` pays for: every layer gets the same number of experts, as near as it goes,
// and none more than it has. min_per_class slots each at the least.
std::vector<uint32_t> plan_slots(const std::vector<SizeClass>& classes, uint64_t cache_bytes, uint32_t min_per_class);

class ExpertCache {
 public:
  Status allocate(const std::vector<ExpertLayer>& layers, std::vector<uint32_t> slots_per_class, Policy policy);
  // Keeps the experts that still fit. No slot may be pinned or reading.
  Status resize(const std::vector<uint32_t>& slots_per_class);

  // Slot of an expert that is ready or being read, or -1.
  int find(ExpertKey key) const { return index_[key.layer][key.expert]; }
  Slot& slot(int idx) { return slots_[static_cast<size_t>(idx)]; }
  const Slot& slot(int idx) const { return slots_[static_cast<size_t>(idx)]; }

  // A slot for `key`, now kReading; its previous expert is gone. -1: none may be given up now.
  // is_guess: only a slot that nothing more likely to be used lies in.
  int take(ExpertKey key, bool is_guess);
  void set_ready(int idx) { slot(idx).state = SlotState::kReady; }
  void set_empty(int idx);
  void touch(int idx);            // the expert is used now
  void next_tick() { ++tick_; }

  size_t n_slots() const { return n_slots_; }
  uint64_t memory_bytes() const { return memory_bytes_; }
  bool holds_everything() const { return holds_everything_; }
  uint64_t n_evicted() const { return n_evicted_; }
  uint64_t wasted_bytes() const { return wasted_bytes_; }    // of guesses given up unused
  void reset_counters() { n_evicted_ = wasted_bytes_ = 0; }
  const std::vector<Slot>& slots() const { return slots_; }

 private:
  Status add_slots(uint32_t class_idx, uint32_t count);
  int victim(uint32_t class_idx, uint32_t layer, bool is_guess) const;
  uint32_t share(uint32_t class_idx) const;

  Policy policy_ = Policy::kShares;
  std::vector<SizeClass> classes_;
  std::vector<uint32_t> class_of_layer_;
  std::vector<uint64_t> record_bytes_;            // by layer
  std::vector<std::vector<int>> index_;           // [layer][expert] -> slot
  std::vector<std::vector<int>> free_;            // by class: empty slots
  std::vector<std::vector<int>> by_layer_;        // by layer: its slots, reading or ready
  std::vector<uint32_t> slots_per_class_;
  std::vector<Slot> slots_;
  std::vector<Buffer> slabs_;
  uint64_t tick_ = 0;
  size_t n_slots_ = 0, n_layers_with_experts_ = 0;
  uint64_t memory_bytes_ = 0, n_evicted_ = 0, wasted_bytes_ = 0;
  bool holds_everything_ = false;
};

}  // namespace les

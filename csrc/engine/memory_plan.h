// One budget for everything: what a model needs, decided before anything is allocated. Pure arithmetic.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/expert_cache.h"

namespace les {

// What the parts cost, as the model and the options say.
struct MemoryNeeds {
  uint64_t process_bytes = 0;    // interpreter, libraries, code: there before the model
  uint64_t trunk_bytes = 0;
  uint64_t tokenizer_bytes = 0;
  uint64_t kv_bytes = 0;         // of one session
  uint64_t state_bytes = 0;      // recurrent state, log and checkpoints of one session
  uint64_t reader_bytes = 0;
  uint64_t scratch_fixed_bytes = 0;      // whatever the chunk
  uint64_t scratch_per_token_bytes = 0;  // times the chunk
  int n_sessions = 1;
  uint64_t expert_bytes = 0;             // all experts, as they lie in slots
  uint32_t n_experts_total = 0;
  uint32_t experts_per_token = 0;        // layers with experts times experts used
  uint32_t n_used = 0;                   // experts of one layer that one token uses
  std::vector<SizeClass> classes;
};

struct MemoryPlan {
  MemoryNeeds needs;
  std::optional<uint64_t> budget_bytes;  // empty: unlimited
  uint64_t floor_bytes = 0;        // smallest budget that runs: one layer's experts and the shortest chunk
  uint64_t recommended_bytes = 0;  // one token's experts and half of all the others
  uint64_t full_bytes = 0;         // everything resident
  uint64_t scratch_bytes = 0, cache_bytes = 0, total_bytes = 0;
  int chunk = 0;                   // prefill tokens at a time
  uint32_t n_slots = 0;
  std::vector<uint32_t> slots_per_class;
  bool fits = false;
  std::string message;             // one line: the verdict, or what to change
};

// chunk 0: chosen by the budget.
MemoryPlan plan_memory(const MemoryNeeds& needs, std::optional<uint64_t> budget_bytes, int chunk);

// "3.2 GiB", "640 MiB"
std::string format_bytes(uint64_t bytes);

// Memory that this process may still take, containers' limits respected.
uint64_t available_memory_bytes();
// Largest resident size of this process so far.
uint64_t peak_memory_bytes();

}  // namespace les

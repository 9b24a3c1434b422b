// How a model is to be run. Defaults suit a phone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/log.h"
#include "kernels/kernels.h"
#include "sched/scheduler.h"

namespace les {

struct EngineOptions {
  std::optional<uint64_t> memory_bytes;  // empty: what the model needs, within what the machine has
  int threads = 0;                       // 0: big cores
  int context = 0;                       // 0: the model's, at most 4096
  KvType kv_type = KvType::kF16;
  int chunk = 0;                         // prefill tokens at a time; 0: by the budget
  std::string reader = "auto";
  int lanes = 0;
  bool direct = true;
  std::string flash;                     // simulated flash; empty: none
  std::string fault;                     // injected faults, for tests; empty: none
  bool verify = true;
  PrefetchMode prefetch = PrefetchMode::kAuto;
  Policy policy = Policy::kShares;
  bool use_float = false;                // activations kept in float
  LogSink log;
};

}  // namespace les

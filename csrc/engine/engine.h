// A loaded model: file, trunk, expert cache, reader, threads, tokenizer. The only layer that owns everything.
//
// Thread-safety: all public functions may be called from any thread; sessions take turns under one lock.
// 1. Sessions keep their engine's parts alive; an engine may be dropped before its sessions.
// 2. A failed call leaves the engine usable.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cpu/thread_pool.h"
#include "engine/memory_plan.h"
#include "engine/options.h"
#include "engine/trunk.h"
#include "model/graph.h"
#include "model/moe_probe.h"
#include "sched/scheduler.h"
#include "store/expert_store.h"
#include "text/tokenizer.h"

namespace les {

class Session;
struct Drafter;

// Totals since load or reset.
struct EngineCounters {
  uint64_t n_steps = 0, prefill_tokens = 0, decode_tokens = 0;
  int64_t prefill_ns = 0, decode_ns = 0;
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const ModelConfig& config() const { return graph_->config(); }
  const MemoryPlan& plan() const { return plan_; }
  const EngineOptions& options() const { return options_; }
  const GgufFile& file() const { return *gguf_; }
  std::shared_ptr<const Tokenizer> tokenizer() const { return tokenizer_; }
  int context() const { return context_; }
  int n_threads() const { return pool_->n_threads(); }
  std::vector<int> moe_layers() const;

  // Memory for another timeline comes out of the expert cache; kBudget when that would fall below its floor.
  Result<std::unique_ptr<Session>> make_session();
  // A draft model for this model; the same path gives the same one. kBudget when there is no room for it.
  Result<std::shared_ptr<const Drafter>> open_drafter(const std::string& path);
  // Changes the budget while sessions keep their state.
  Status set_memory(std::optional<uint64_t> memory_bytes);

  // A consistent copy of the figures.
  struct Figures {
    EngineCounters counters;
    SchedulerStats scheduler;
    ReaderStats reader;
    std::string reader_name;
    uint64_t n_evicted = 0, wasted_bytes = 0, cache_bytes = 0;
    size_t n_slots = 0;
    uint64_t scratch_high_water_bytes = 0;
    MemoryPlan plan;  // as it is now; plan() is for one thread at a time
  };
  // Measures from now on, beginning at nothing; a disturbance needs a row of the layer's width for each token to come.
  Status start_probe(MoeProbeOptions options);
  // What an expert's arithmetic needs beside its weights. Biases [n_expert, width], empty where there are none.
  struct ExpertFacts {
    const char* act = "";
    std::vector<float> gate_bias, up_bias, down_bias;
  };
  ExpertFacts expert_facts(int layer) const;
  // What was gathered, and the end of it; empty when nothing was started.
  std::vector<MoeProbeLayer> stop_probe();
  Figures figures();
  void reset_figures();

 private:
  friend Result<std::shared_ptr<Engine>> open_engine(const std::string& path, const EngineOptions& options,
                                                     const ProgressFn& progress);
  friend class Session;
  Engine() = default;
  Status load(const std::string& path, const EngineOptions& options, const ProgressFn& progress);
  Status start_reader();
  // With so many sessions; one at least: there is always room for the first.
  MemoryNeeds needs_for(int n_sessions) const;
  Status apply_plan(const MemoryPlan& plan);
  void drop_session();

  std::mutex mutex_;                      // guards all that follows during a step
  EngineOptions options_;
  int context_ = 0;
  std::shared_ptr<GgufFile> gguf_;
  std::shared_ptr<ExpertStore> store_;
  OpenFiles files_;
  std::unique_ptr<ModelGraph> graph_;
  StateSpec state_spec_;
  MemoryPlan plan_;
  int n_sessions_ = 0;
  Buffer trunk_;
  EmbeddingRows embedding_;
  EmbedFn embed_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<ThreadPool> pool_;
  Scratch scratch_;
  ExpertCache cache_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<MoeRunner> moe_;
  std::unique_ptr<MoeProbe> probe_;
  Exec exec_;
  EngineCounters counters_;
  std::map<std::string, std::shared_ptr<Drafter>> drafters_;
};

Result<std::shared_ptr<Engine>> open_engine(const std::string& path, const EngineOptions& options,
                                            const ProgressFn& progress);

// The plan that open_engine would make, from the file's headers alone.
// context: the tokens it is for.
Result<MemoryPlan> plan_model(const std::string& path, const EngineOptions& options, int* context);

}  // namespace les

// Gets the chosen experts of one layer at a time: those in memory first, the others as their reads arrive; and reads
// ahead what a predictor guesses for the next layer. Knows no maths and no models.
//
// Thread-safety: one compute thread calls; readers deliver into the ready queue from their own threads.
// 1. begin_layer, then next until it gives nothing, then the next begin_layer. A failed next ends the layer.
// 2. What next gives is pinned until done; a reader never writes where a kernel reads.
// 3. Every demanded expert is given exactly once. Guesses change what is read when, never what is given.
// 4. A demand read is submitted before any guess of the same moment, and overtakes guesses that have not started.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/expert_cache.h"
#include "io/async_reader.h"
#include "sched/lookahead.h"
#include "sched/ready_queue.h"
#include "store/expert_store.h"

namespace les {

struct ReadyExpert {
  int idx = 0;                  // position in the list given to begin_layer
  int slot = 0;
  const uint8_t* data = nullptr;
};

struct LayerStats {
  uint64_t n_hit = 0, n_late = 0, n_miss = 0;
  uint64_t n_predicted = 0;     // chosen experts that had been predicted, of n_chosen with a prediction
  uint64_t n_chosen = 0;
  int64_t stall_ns = 0;
};

struct SchedulerStats {
  std::vector<LayerStats> layers;
  uint64_t read_bytes = 0;
  uint64_t guessed_bytes = 0;                  // guesses read
  uint64_t useful_bytes = 0;                   // of guesses that were in memory when they were chosen
  uint64_t late_bytes = 0;                     // of guesses that were still being read when they were chosen
  uint64_t n_cancelled = 0;                    // guesses dropped before they started
  uint64_t n_errors = 0;
};

enum class PrefetchMode : int { kOff = 0, kOn = 1, kAuto = 2 };

struct SchedulerOptions {
  bool verify = true;           // check a record's checksum when it is first read
  PrefetchMode prefetch = PrefetchMode::kAuto;
};

class Scheduler final : private CompletionSink {
 public:
  Scheduler(const ExpertStore& store, ExpertCache& cache, SchedulerOptions options);
  ~Scheduler() override;

  // The reader that completes into this scheduler, and the store's open shards. Called once, before anything else.
  CompletionSink* sink() { return this; }
  void attach(std::unique_ptr<AsyncReader> reader, std::vector<const File*> files);

  Status begin_layer(uint32_t layer, std::span<const uint32_t> experts);
  // Experts to compute now; empty when all were given. Waits only when nothing is ready.
  Status next(std::vector<ReadyExpert>* ready);
  void done(const ReadyExpert& expert);

  bool wants_guesses(int n_tokens) const;
  // Most likely first; called while `layer` is still to come.
  void guess(uint32_t layer, std::span<const Guess> guesses);

  // Looked at while waiting: once true, the layer fails with kCancelled. Null: nobody cancels. It outlives the layer.
  void set_cancel_flag(const std::atomic<bool>* flag) { cancel_flag_ = flag; }
  // Ends a wait, so that the flag is seen at once. From any thread.
  void wake() { signal_.notify(); }

  // Waits until no read is in flight; then slots may change.
  void settle();
  const SchedulerStats& stats() const { return stats_; }
  void reset_stats();
  const AsyncReader* reader() const { return reader_.get(); }

 private:
  struct Arrival {
    uint64_t tag;
    int32_t code;
  };
  // What a reader thread needs to know of a slot in flight; written before the read is submitted.
  struct Flight {
    int n_parts_left = 0;
    bool has_failed = false;
    bool is_checked = false;
    uint64_t expected_checksum = 0;
    uint64_t size_bytes = 0;
    int demand_idx = -1;        // position in the current demand, or -1
  };

  void on_read_complete(ReadCompletion completion) override;
  void submit(int slot, ReadClass read_class);
  bool try_demand(int demand_idx);
  void drain();
  void land(const Arrival& arrival);
  void drop_layer();
  std::string describe(ExpertKey key) const;

  const ExpertStore& store_;
  ExpertCache& cache_;
  SchedulerOptions options_;
  std::vector<const File*> files_;

  // Shared with reader threads.
  ReadyQueue<Arrival> arrivals_;
  ReadySignal signal_;
  std::vector<Flight> flights_;             // by slot
  std::mutex errors_mutex_;
  std::unordered_map<uint64_t, Status> errors_;  // by tag

  // The layer at work.
  const std::atomic<bool>* cancel_flag_ = nullptr;
  uint32_t layer_ = 0;
  std::vector<uint32_t> experts_;
  std::vector<ReadyExpert> ready_;          // to be given
  std::vector<int> unplaced_;               // demand indices that wait for a slot
  size_t n_given_ = 0;
  std::vector<int> pinned_;                 // slots pinned for this layer
  Status error_;

  int n_in_flight_ = 0;                     // slots being read
  Lookahead lookahead_;
  std::vector<std::vector<bool>> verified_; // [layer][expert]
  SchedulerStats stats_;
  std::unique_ptr<AsyncReader> reader_;     // last: destroyed first, so that no completion comes afterwards
};

}  // namespace les

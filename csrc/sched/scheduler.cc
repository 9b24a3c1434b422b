#include "sched/scheduler.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/clock.h"

namespace les {

namespace {

constexpr size_t kMaxInFlight = 256;      // slots being read at once; bounds the queue
constexpr size_t kMaxParts = 4;           // extents of one expert
constexpr int kMaxGuessTokens = 16;       // decode and verification; prefill reads everything in order anyway

uint64_t make_tag(int slot, size_t part) { return static_cast<uint64_t>(slot) * kMaxParts + part; }
int slot_of(uint64_t tag) { return static_cast<int>(tag / kMaxParts); }

}  // namespace

Scheduler::Scheduler(const ExpertStore& store, ExpertCache& cache, SchedulerOptions options)
    : store_(store),
      cache_(cache),
      options_(options),
      arrivals_(kMaxInFlight * kMaxParts),
      lookahead_(store.n_layers()) {
  verified_.resize(store.n_layers());
  for (uint32_t l = 0; l < store.n_layers(); ++l) verified_[l].assign(store.layer(l).n_expert, false);
  reset_stats();
}

Scheduler::~Scheduler() = default;

void Scheduler::attach(std::unique_ptr<AsyncReader> reader, std::vector<const File*> files) {
  reader_ = std::move(reader);
  files_ = std::move(files);
}

void Scheduler::reset_stats() {
  stats_ = {};
  stats_.layers.resize(store_.n_layers());
}

std::string Scheduler::describe(ExpertKey key) const {
  return "layer " + std::to_string(key.layer) + " expert " + std::to_string(key.expert);
}

// On a reader thread. A record that arrived whole is checked here, away from the compute threads.
void Scheduler::on_read_complete(ReadCompletion completion) {
  Status status = std::move(completion.status);
  const int slot = slot_of(completion.tag);
  const Flight& flight = flights_[static_cast<size_t>(slot)];
  if (status.is_ok() && flight.is_checked) {
    const uint64_t actual = xxh3_64(cache_.slot(slot).data, flight.size_bytes);
    if (actual != flight.expected_checksum) {
      status =
          make_error(Code::kCorrupt, "checksum is %016llx; expected %016llx", static_cast<unsigned long long>(actual),
                     static_cast<unsigned long long>(flight.expected_checksum));
    }
  }
  const auto code = static_cast<int32_t>(status.code());
  if (!status.is_ok()) {
    const std::lock_guard lock(errors_mutex_);
    errors_.emplace(completion.tag, std::move(status));
  }
  // Cannot be full: its capacity is that of all reads in flight.
  (void)arrivals_.try_push({completion.tag, code});
  signal_.notify();
}

void Scheduler::submit(int slot, ReadClass read_class) {
  const Slot& s = cache_.slot(slot);
  const ExpertLayer& geometry = store_.layer(s.key.layer);
  const std::vector<Extent> extents = store_.extents(s.key);
  flights_.resize(std::max(flights_.size(), cache_.slots().size()));
  Flight& flight = flights_[static_cast<size_t>(slot)];
  flight = {};
  flight.n_parts_left = static_cast<int>(extents.size());
  flight.size_bytes = extents.size() == 1 ? extents[0].size_bytes : geometry.slot_bytes;
  flight.is_checked = options_.verify && extents.size() == 1 && !verified_[s.key.layer][s.key.expert] &&
                      store_.checksum(s.key, &flight.expected_checksum);
  ++n_in_flight_;
  for (size_t part = 0; part < extents.size(); ++part) {
    const Extent& extent = extents[part];
    reader_->submit({files_[extent.file_idx], extent.offset_bytes, extent.size_bytes, s.data + extent.slot_offset_bytes,
                     make_tag(slot, part), read_class});
    stats_.read_bytes += extent.size_bytes;
  }
}

bool Scheduler::try_demand(int demand_idx) {
  if (n_in_flight_ >= static_cast<int>(kMaxInFlight)) return false;
  const int slot = cache_.take({layer_, experts_[static_cast<size_t>(demand_idx)]}, false);
  if (slot < 0) return false;
  ++cache_.slot(slot).pins;
  pinned_.push_back(slot);
  cache_.touch(slot);
  submit(slot, ReadClass::kDemand);
  flights_[static_cast<size_t>(slot)].demand_idx = demand_idx;
  return true;
}

Status Scheduler::begin_layer(uint32_t layer, std::span<const uint32_t> experts) {
  drain();
  cache_.next_tick();
  layer_ = layer;
  drop_layer();  // of a step that ended in the middle of one
  experts_.assign(experts.begin(), experts.end());
  n_given_ = 0;
  error_ = Status::ok();
  LayerStats& stats = stats_.layers[layer];
  if (const int n_predicted = lookahead_.settle(layer, experts); n_predicted >= 0) {
    stats.n_predicted += static_cast<uint64_t>(n_predicted);
    stats.n_chosen += experts.size();
  }
  const uint64_t record_bytes = store_.layer(layer).slot_bytes;
  // Hits are pinned before any slot is taken, or a miss could push out an expert of this very layer.
  for (int i = 0; i < static_cast<int>(experts_.size()); ++i) {
    const int slot = cache_.find({layer, experts_[static_cast<size_t>(i)]});
    if (slot < 0) {
      unplaced_.push_back(i);
      continue;
    }
    Slot& s = cache_.slot(slot);
    ++s.pins;
    pinned_.push_back(slot);
    cache_.touch(slot);
    if (s.state == SlotState::kReady) {
      ++stats.n_hit;
      if (s.is_unused_guess) stats_.useful_bytes += record_bytes;
      ready_.push_back({i, slot, s.data});
    } else {
      ++stats.n_late;
      stats_.late_bytes += record_bytes;
      flights_[static_cast<size_t>(slot)].demand_idx = i;
      for (size_t part = 0; part < kMaxParts; ++part) reader_->promote(make_tag(slot, part));
    }
    s.is_unused_guess = false;
  }
  stats.n_miss += unplaced_.size();
  // Guesses for this layer that did not come true and have not started are not worth reading any more.
  for (size_t i = 0; i < flights_.size(); ++i) {
    const Slot& s = cache_.slot(static_cast<int>(i));
    if (s.state != SlotState::kReading || !s.is_unused_guess || s.key.layer != layer) continue;
    for (size_t part = 0; part < kMaxParts; ++part) reader_->cancel(make_tag(static_cast<int>(i), part));
  }
  std::erase_if(unplaced_, [this](int i) { return try_demand(i); });
  return Status::ok();
}

void Scheduler::land(const Arrival& arrival) {
  const int slot = slot_of(arrival.tag);
  Flight& flight = flights_[static_cast<size_t>(slot)];
  Slot& s = cache_.slot(slot);
  const auto code = static_cast<Code>(arrival.code);
  if (code != Code::kOk) {
    flight.has_failed = true;
    Status status;
    {
      const std::lock_guard lock(errors_mutex_);
      const auto found = errors_.find(arrival.tag);
      status = found->second;
      errors_.erase(found);
    }
    if (code == Code::kCancelled) {
      ++stats_.n_cancelled;
    } else {
      ++stats_.n_errors;
      if (flight.demand_idx >= 0 && error_.is_ok()) {
        error_ = Status(status.code(), store_.file().path() + ": " + describe(s.key) + ": " + status.message());
      }
    }
  }
  if (--flight.n_parts_left > 0) return;
  --n_in_flight_;
  const int demand_idx = flight.demand_idx;
  flight.demand_idx = -1;
  if (flight.has_failed) {
    s.pins = 0;
    std::erase(pinned_, slot);
    cache_.set_empty(slot);
    // A guess that was being dropped when it turned out to be needed is read again, now as a demand.
    if (demand_idx >= 0 && error_.is_ok()) unplaced_.push_back(demand_idx);
    return;
  }
  cache_.set_ready(slot);
  if (flight.is_checked) verified_[s.key.layer][s.key.expert] = true;
  if (demand_idx >= 0) {
    ready_.push_back({demand_idx, slot, s.data});
  } else if (s.is_unused_guess) {
    stats_.guessed_bytes += flight.size_bytes;
  }
}

void Scheduler::drain() {
  Arrival arrival{};
  while (arrivals_.try_pop(&arrival)) land(arrival);
}

// Reads in flight go on and fill their slots; nothing of this layer stays pinned or demanded.
void Scheduler::drop_layer() {
  for (const int slot : pinned_) {
    cache_.slot(slot).pins = 0;
    if (cache_.slot(slot).state == SlotState::kReading) flights_[static_cast<size_t>(slot)].demand_idx = -1;
  }
  pinned_.clear();
  ready_.clear();
  unplaced_.clear();
  n_given_ = experts_.size();
}

Status Scheduler::next(std::vector<ReadyExpert>* ready) {
  ready->clear();
  int64_t stall_start_ns = 0;
  for (;;) {
    const uint32_t seen = signal_.epoch();
    drain();
    if (cancel_flag_ != nullptr && cancel_flag_->load(std::memory_order_relaxed)) {
      drop_layer();
      return make_error(Code::kCancelled, "cancelled");
    }
    if (!error_.is_ok()) {
      drop_layer();
      return error_;
    }
    if (!ready_.empty()) break;
    if (n_given_ == experts_.size()) return Status::ok();
    std::erase_if(unplaced_, [this](int i) { return try_demand(i); });
    if (n_in_flight_ == 0) {
      drop_layer();
      return make_error(Code::kInternal, "no slot for %s", describe({layer_, experts_[0]}).c_str());
    }
    if (stall_start_ns == 0) stall_start_ns = now_ns();
    signal_.wait(seen);
  }
  if (stall_start_ns != 0) stats_.layers[layer_].stall_ns += now_ns() - stall_start_ns;
  ready->swap(ready_);
  n_given_ += ready->size();
  return Status::ok();
}

void Scheduler::done(const ReadyExpert& expert) {
  Slot& s = cache_.slot(expert.slot);
  s.pins = 0;
  std::erase(pinned_, expert.slot);
  if (!unplaced_.empty()) std::erase_if(unplaced_, [this](int i) { return try_demand(i); });
}

bool Scheduler::wants_guesses(int n_tokens) const {
  return options_.prefetch != PrefetchMode::kOff && n_tokens <= kMaxGuessTokens && !cache_.holds_everything();
}

void Scheduler::guess(uint32_t layer, std::span<const Guess> guesses) {
  std::vector<bool> is_resident;
  for (const Guess& g : guesses) is_resident.push_back(cache_.find({layer, g.expert}) >= 0);
  lookahead_.predict(layer, guesses, is_resident);
  for (const Guess& g : guesses) {
    if (n_in_flight_ >= static_cast<int>(kMaxInFlight)) return;
    if (options_.prefetch == PrefetchMode::kAuto && !lookahead_.is_worth_reading(g.rank)) continue;
    if (cache_.find({layer, g.expert}) >= 0) continue;  // in memory, or guessed for another token of the step
    const int slot = cache_.take({layer, g.expert}, true);
    if (slot < 0) return;
    submit(slot, ReadClass::kPrefetch);
  }
}

void Scheduler::settle() {
  while (n_in_flight_ > 0) {
    const uint32_t seen = signal_.epoch();
    drain();
    if (n_in_flight_ > 0) signal_.wait(seen);
  }
}

}  // namespace les

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "base/clock.h"
#include "io/make_reader.h"
#include "sched/scheduler.h"
#include "tiny_gguf.h"

namespace les {
namespace {

constexpr uint32_t kLayers = 4, kExperts = 12, kWidth = 32, kUsed = 4;

// A scheduler over a file, and a compute thread that checks every expert it is given.
struct Rig {
  std::string path;
  std::shared_ptr<ExpertStore> store;
  std::unique_ptr<File> file;
  ExpertCache cache;
  std::unique_ptr<Scheduler> scheduler;

  Rig(uint32_t n_slots, PrefetchMode prefetch, const char* fault = nullptr, int lanes = 2) {
    path = write_expert_gguf(kLayers, kExperts, kWidth);
    auto gguf = open_gguf(path);
    REQUIRE(gguf.is_ok());
    auto opened = open_expert_store(*gguf);
    REQUIRE(opened.is_ok());
    store = *opened;
    FileOptions options;
    options.try_direct = false;
    auto opened_file = open_file(path, options);
    REQUIRE(opened_file.is_ok());
    file = std::move(*opened_file);
    std::vector<ExpertLayer> layers;
    for (uint32_t l = 0; l < store->n_layers(); ++l) layers.push_back(store->layer(l));
    REQUIRE(cache.allocate(layers, {n_slots}, Policy::kShares).is_ok());
    scheduler = std::make_unique<Scheduler>(*store, cache, SchedulerOptions{true, prefetch});
    ReaderOptions reader;
    reader.kind = "pread";
    reader.lanes = lanes;
    if (fault != nullptr) reader.fault = *parse_fault(fault);
    auto made = make_reader(reader, scheduler->sink());
    REQUIRE(made.is_ok());
    scheduler->attach(std::move(*made), {file.get()});
  }
  ~Rig() {
    scheduler.reset();
    std::remove(path.c_str());
  }

  // One layer; true if every expert came once, with the right bytes.
  Status run_layer(uint32_t layer, const std::vector<uint32_t>& experts) {
    LES_RETURN_IF_ERROR(scheduler->begin_layer(layer, experts));
    std::vector<ReadyExpert> ready;
    std::vector<int> given(experts.size(), 0);
    for (;;) {
      LES_RETURN_IF_ERROR(scheduler->next(&ready));
      if (ready.empty()) break;
      for (const ReadyExpert& e : ready) {
        ++given[static_cast<size_t>(e.idx)];
        const uint32_t id = experts[static_cast<size_t>(e.idx)];
        for (uint32_t s = 0; s < 3; ++s) {
          const auto* row = reinterpret_cast<const float*>(e.data + store->layer(layer).slices[s].offset_bytes);
          CHECK(row[0] == marker(layer, id, s));
          CHECK(row[kWidth * kWidth - 1] == marker(layer, id, s));
        }
        scheduler->done(e);
      }
    }
    for (const int n : given) CHECK(n == 1);
    return Status::ok();
  }
};

std::vector<uint32_t> choose(std::mt19937& random, size_t n = kUsed) {
  std::vector<uint32_t> all(kExperts);
  for (uint32_t e = 0; e < kExperts; ++e) all[e] = e;
  std::shuffle(all.begin(), all.end(), random);
  all.resize(n);
  std::sort(all.begin(), all.end());
  return all;
}

TEST_CASE("every chosen expert is given once with its bytes, for every cache size, guess and fault") {
  for (const uint32_t n_slots : {2u, 3u, 8u, 20u, 48u}) {
    for (const PrefetchMode mode : {PrefetchMode::kOff, PrefetchMode::kOn, PrefetchMode::kAuto}) {
      for (const char* fault : {"", "short,2", "eintr,2", "reorder,2", "delay,3,200"}) {
        Rig rig(n_slots, mode, *fault == 0 ? nullptr : fault);
        std::mt19937 random(n_slots);
        for (int token = 0; token < 20; ++token) {
          std::vector<uint32_t> experts = choose(random);
          for (uint32_t l = 0; l < kLayers; ++l) {
            REQUIRE(rig.run_layer(l, experts).is_ok());
            experts = choose(random);
            if (l + 1 == kLayers) continue;
            // Half of the guesses are right.
            std::vector<Guess> guesses = {{experts[0], 0}, {experts[1], 1}, {(experts[2] + 1) % kExperts, 2}, {0, 3}};
            if (rig.scheduler->wants_guesses(1)) rig.scheduler->guess(l + 1, guesses);
          }
        }
        rig.scheduler->settle();
        for (const Slot& slot : rig.cache.slots()) {
          CHECK(slot.pins == 0);
          CHECK(slot.state != SlotState::kReading);
        }
      }
    }
  }
}

TEST_CASE("a prefill's union larger than the cache goes through it in order") {
  Rig rig(3, PrefetchMode::kAuto);
  std::vector<uint32_t> all(kExperts);
  for (uint32_t e = 0; e < kExperts; ++e) all[e] = e;
  for (uint32_t l = 0; l < kLayers; ++l) REQUIRE(rig.run_layer(l, all).is_ok());
  CHECK(rig.scheduler->stats().read_bytes == kLayers * rig.store->layer(0).slot_bytes * kExperts);
}

TEST_CASE("a read error names layer and expert, and the next layer works") {
  Rig rig(4, PrefetchMode::kOff, "eio,60");
  std::mt19937 random(5);
  int n_failed = 0, n_ok = 0;
  for (int i = 0; i < 60; ++i) {
    const Status status = rig.run_layer(static_cast<uint32_t>(i) % kLayers, choose(random));
    if (status.is_ok()) {
      ++n_ok;
      continue;
    }
    ++n_failed;
    CHECK(status.code() == Code::kIo);
    CHECK(status.message().find("layer ") != std::string::npos);
    CHECK(status.message().find("expert ") != std::string::npos);
  }
  CHECK(n_failed > 0);
  CHECK(n_ok > 0);
  rig.scheduler->settle();
  for (const Slot& slot : rig.cache.slots()) CHECK(slot.pins == 0);
}

TEST_CASE("cancelled, then as good as new") {
  Rig rig(4, PrefetchMode::kAuto);
  std::atomic<bool> flag{true};
  rig.scheduler->set_cancel_flag(&flag);
  CHECK(rig.run_layer(0, {0, 1, 2, 3}).code() == Code::kCancelled);
  flag = false;
  CHECK(rig.run_layer(0, {0, 1, 2, 3}).is_ok());
}

TEST_CASE("a cancel ends the wait for a slow read") {
  Rig rig(4, PrefetchMode::kOff, "delay,1,2000000");
  std::atomic<bool> flag{false};
  rig.scheduler->set_cancel_flag(&flag);
  const int64_t start_ns = now_ns();
  std::thread other([&] {
    system_clock().sleep_until_ns(start_ns + 50'000'000);
    flag = true;
    rig.scheduler->wake();
  });
  CHECK(rig.run_layer(0, {0, 1, 2, 3}).code() == Code::kCancelled);
  CHECK(now_ns() - start_ns < 1'000'000'000);  // half of what the read takes
  other.join();
}

TEST_CASE("a layer left in the middle keeps nothing pinned") {
  Rig rig(4, PrefetchMode::kOff);
  std::vector<ReadyExpert> ready;
  for (int i = 0; i < 5; ++i) {
    REQUIRE(rig.scheduler->begin_layer(0, std::vector<uint32_t>{0, 1, 2, 3}).is_ok());
    REQUIRE(rig.scheduler->next(&ready).is_ok());
  }
  for (uint32_t l = 0; l < kLayers; ++l) CHECK(rig.run_layer(l, {4, 5, 6, 7}).is_ok());
}

TEST_CASE("recall counts a chosen expert once, however many tokens guessed it") {
  Rig rig(24, PrefetchMode::kOn);
  REQUIRE(rig.run_layer(0, {0}).is_ok());
  rig.scheduler->guess(1, std::vector<Guess>{{3, 0}, {3, 0}, {4, 1}, {3, 1}});
  REQUIRE(rig.run_layer(1, {3, 5}).is_ok());
  CHECK(rig.scheduler->stats().layers[1].n_predicted == 1);
  CHECK(rig.scheduler->stats().layers[1].n_chosen == 2);
}

TEST_CASE("made and destroyed while reads are in flight") {
  for (int i = 0; i < 30; ++i) {
    Rig rig(24, PrefetchMode::kOn, i % 2 == 0 ? "delay,1,300" : nullptr);
    REQUIRE(rig.run_layer(0, {1, 2}).is_ok());
    rig.scheduler->guess(1, std::vector<Guess>{{0, 0}, {1, 1}, {2, 2}, {3, 3}});
  }
}

}  // namespace
}  // namespace les

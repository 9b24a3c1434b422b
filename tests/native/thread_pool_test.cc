#include <doctest/doctest.h>

#include <atomic>
#include <ctime>
#include <vector>

#include "base/clock.h"
#include "cpu/thread_pool.h"

namespace les {
namespace {

TEST_CASE("every index runs exactly once, whatever the sizes") {
  for (int n_threads : {1, 2, 3, 16}) {
    ThreadPool pool(n_threads);
    for (int64_t n : {0, 1, 2, 15, 16, 17, 1000}) {
      for (int64_t grain : {1, 4, 64}) {
        std::vector<std::atomic<int>> hits(static_cast<size_t>(n));
        pool.parallel_for(n, grain, [&](int64_t begin, int64_t end, int thread_idx) {
          CHECK(thread_idx < n_threads);
          CHECK(begin % grain == 0);
          for (int64_t i = begin; i < end; ++i) hits[static_cast<size_t>(i)].fetch_add(1);
        });
        for (auto& hit : hits) REQUIRE(hit.load() == 1);
      }
    }
  }
}

TEST_CASE("many short jobs in a row") {
  ThreadPool pool(4);
  std::atomic<int64_t> sum{0};
  for (int job = 0; job < 20'000; ++job) {
    pool.parallel_for(8, 1, [&](int64_t begin, int64_t end, int) { sum.fetch_add(end - begin); });
  }
  CHECK(sum.load() == 160'000);
}

TEST_CASE("an idle pool sleeps") {
  ThreadPool pool(3);
  pool.parallel_for(8, 1, [](int64_t, int64_t, int) {});
  system_clock().sleep_until_ns(now_ns() + 10'000'000);
  const std::clock_t before = std::clock();
  system_clock().sleep_until_ns(now_ns() + 200'000'000);
  const double cpu_seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  CHECK(cpu_seconds < 0.02 * 0.2 * 3);
}

}  // namespace
}  // namespace les

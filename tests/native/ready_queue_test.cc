#include "sched/ready_queue.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace les {
namespace {

TEST_CASE("a queue is first in, first out, full at its capacity and empty after as many pops") {
  ReadyQueue<int> queue(5);
  CHECK(queue.capacity() == 8);
  int out = -1;
  // Several rounds: the cells' numbers must come round.
  for (int round = 0; round < 5; round++) {
    CHECK_FALSE(queue.try_pop(&out));
    for (int i = 0; i < 8; i++) CHECK(queue.try_push(round * 100 + i));
    CHECK_FALSE(queue.try_push(-1));
    CHECK(queue.size_hint() == 8);
    for (int i = 0; i < 8; i++) {
      REQUIRE(queue.try_pop(&out));
      CHECK(out == round * 100 + i);
    }
    CHECK(queue.size_hint() == 0);
  }
}

TEST_CASE("a queue of one cell is not made") {
  ReadyQueue<int> queue(0);
  CHECK(queue.capacity() == 2);
}

struct Item {
  uint32_t producer = 0, seq = 0;
  uint64_t check = 0;  // ties the halves together: a torn element would show
};

uint64_t check_of(uint32_t producer, uint32_t seq) { return (uint64_t{producer} << 32 | seq) * 0x9E3779B97F4A7C15ull; }

void stress(int n_producers, int n_consumers, uint32_t n_each, size_t capacity) {
  ReadyQueue<Item> queue(capacity);
  ReadySignal signal;
  std::atomic<uint64_t> n_popped{0};
  std::atomic<int> n_bad{0};
  const uint64_t n_total = uint64_t{n_each} * static_cast<uint64_t>(n_producers);
  std::vector<std::atomic<uint8_t>> seen(n_total);
  std::vector<std::thread> threads;
  for (int p = 0; p < n_producers; p++) {
    threads.emplace_back([&, p] {
      const auto producer = static_cast<uint32_t>(p);
      for (uint32_t seq = 0; seq < n_each; seq++) {
        while (!queue.try_push({producer, seq, check_of(producer, seq)})) std::this_thread::yield();
        signal.notify();
      }
    });
  }
  for (int c = 0; c < n_consumers; c++) {
    threads.emplace_back([&] {
      std::vector<int64_t> last(static_cast<size_t>(n_producers), -1);
      while (n_popped.load() < n_total) {
        const uint32_t epoch = signal.epoch();
        Item item;
        if (!queue.try_pop(&item)) {
          if (n_popped.load() < n_total) signal.wait(epoch, 50);
          continue;
        }
        // Whatever one consumer gets from one producer is in that producer's order.
        if (item.check != check_of(item.producer, item.seq) || last[item.producer] >= int64_t{item.seq}) n_bad++;
        last[item.producer] = item.seq;
        if (seen[uint64_t{item.producer} * n_each + item.seq].fetch_add(1) != 0) n_bad++;
        if (n_popped.fetch_add(1) + 1 == n_total) signal.notify();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(n_bad.load() == 0);
  uint64_t n_seen = 0;
  for (const auto& count : seen) n_seen += count.load();
  CHECK(n_seen == n_total);
}

TEST_CASE("every element arrives once, whole and in its producer's order") {
  SUBCASE("four to one") { stress(4, 1, 20000, 64); }
  SUBCASE("one to four") { stress(1, 4, 40000, 64); }
  SUBCASE("three to three through two cells") { stress(3, 3, 8000, 2); }
}

TEST_CASE("a signal wakes a sleeper, and one given before the wait is not lost") {
  ReadySignal signal;
  const uint32_t before = signal.epoch();
  signal.notify();
  signal.wait(before, 0);  // returns at once, or the test hangs

  std::atomic<bool> is_published{false}, was_seen{false};
  std::thread consumer([&] {
    for (;;) {
      const uint32_t epoch = signal.epoch();
      if (is_published.load()) break;
      signal.wait(epoch);
    }
    was_seen = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // long enough to be asleep
  CHECK_FALSE(was_seen.load());
  is_published = true;
  signal.notify();
  consumer.join();
  CHECK(was_seen.load());
}

TEST_CASE("ping-pong through sleeping signals never misses a turn") {
  ReadySignal ping, pong;
  std::atomic<int> turn{0};
  constexpr int kTurns = 3000;
  const auto play = [&](int mine, ReadySignal* wait_for, ReadySignal* tell) {
    for (int i = mine; i < kTurns; i += 2) {
      for (;;) {
        const uint32_t epoch = wait_for->epoch();
        if (turn.load() == i) break;
        wait_for->wait(epoch, 0);
      }
      turn = i + 1;
      tell->notify();
    }
  };
  std::thread other([&] { play(1, &ping, &pong); });
  play(0, &pong, &ping);
  other.join();
  CHECK(turn.load() == kTurns);
}

}  // namespace
}  // namespace les

// Arrived experts waiting to be computed: a bounded queue without locks, and the signal its consumer sleeps on.
//
// Thread-safety: try_push and try_pop may be called from any number of threads at once. Construction and destruction
// must be ordered with every other call by the owner (start and join of the threads).
//
// Each cell carries a sequence number that says whose turn it is. With `capacity` cells and a ticket t, cell t %
// capacity is free for the producer of ticket t when its number is t, and full for the consumer of ticket t when it is
// t + 1; the consumer then sets t + capacity, the producer's number of the next round.
//
// 1. A cell's number only grows, and only the holder of the matching ticket changes it or touches the cell's value.
// 2. The value is written before the number t + 1 is stored (release) and read after it was loaded (acquire); it is
//    read before t + capacity is stored (release), and overwritten after that was loaded (acquire).
// 3. A ticket is taken by one compare-and-swap on push_ or pop_, after the cell's number was seen to be right for it.
//    Between the two the cell cannot change hands: that would need the same ticket.
// 4. Elements leave in the order of their push tickets. Pushes by one thread keep their order.
// 5. try_push fails only when `capacity` tickets are pushed and not yet popped, try_pop only when the oldest element is
//    not yet published; a thread stopped between ticket and publication makes poppers see "empty" at its cell, no more.
// 6. Nothing is allocated after construction, so nothing is ever freed under a reader.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace les {

constexpr size_t kCacheLineBytes = 64;

template <typename T>
class ReadyQueue {
  static_assert(std::is_trivially_copyable_v<T>, "elements are copied by racing threads' turns, never constructed");

 public:
  // Rounded up to a power of two, at least 2.
  explicit ReadyQueue(size_t min_capacity)
      : mask_(std::bit_ceil(min_capacity < 2 ? size_t{2} : min_capacity) - 1), cells_(new Cell[mask_ + 1]) {
    for (size_t i = 0; i <= mask_; i++) cells_[i].turn.store(i, std::memory_order_relaxed);
  }
  ReadyQueue(const ReadyQueue&) = delete;
  ReadyQueue& operator=(const ReadyQueue&) = delete;

  size_t capacity() const { return mask_ + 1; }

  // False when full.
  [[nodiscard]] bool try_push(const T& value) {
    size_t ticket = push_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[ticket & mask_];
      const auto lead = static_cast<std::ptrdiff_t>(cell.turn.load(std::memory_order_acquire) - ticket);
      if (lead == 0) {
        if (push_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_relaxed)) {
          cell.value = value;
          cell.turn.store(ticket + 1, std::memory_order_release);
          return true;
        }
      } else if (lead < 0) {
        return false;
      } else {
        ticket = push_.load(std::memory_order_relaxed);
      }
    }
  }

  // False when nothing is ready.
  [[nodiscard]] bool try_pop(T* out) {
    size_t ticket = pop_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[ticket & mask_];
      const auto lead = static_cast<std::ptrdiff_t>(cell.turn.load(std::memory_order_acquire) - (ticket + 1));
      if (lead == 0) {
        if (pop_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_relaxed)) {
          *out = cell.value;
          cell.turn.store(ticket + mask_ + 1, std::memory_order_release);
          return true;
        }
      } else if (lead < 0) {
        return false;
      } else {
        ticket = pop_.load(std::memory_order_relaxed);
      }
    }
  }

  // Exact when nobody else pushes or pops; a hint otherwise.
  size_t size_hint() const {
    const size_t popped = pop_.load(std::memory_order_acquire);
    const size_t pushed = push_.load(std::memory_order_acquire);
    return pushed > popped ? pushed - popped : 0;
  }

 private:
  struct Cell {
    std::atomic<size_t> turn;
    T value;
  };

  const size_t mask_;
  const std::unique_ptr<Cell[]> cells_;
  alignas(kCacheLineBytes) std::atomic<size_t> push_{0};  // apart, so that pushers and poppers do not share a line
  alignas(kCacheLineBytes) std::atomic<size_t> pop_{0};
};

// Tells the core that this is a wait loop.
inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
  __asm__ __volatile__("yield");
#endif
}

// A count of events to sleep on. Any number of producers and consumers.
//
// The consumer's loop:          The producer:
//   seen = signal.epoch();        publish (try_push)
//   if (queue.try_pop(&x)) ...    signal.notify();
//   else signal.wait(seen);
//
// 1. notify after publication and epoch() before the look at the data: a wait that returns late is impossible, for
//    either the look sees the data or the epoch has moved past `seen`.
// 2. sleepers_ is raised before the epoch is tested for the last time, and the epoch is raised before sleepers_ is
//    tested, both sequentially consistent: a producer that sees no sleeper left an epoch that the consumer sees.
class ReadySignal {
 public:
  uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }

  void notify() {
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) epoch_.notify_all();
  }

  // Returns once notify() was called after epoch() gave `seen`. Spins n_spins pauses (about 10-40 ns each), then
  // sleeps.
  void wait(uint32_t seen, int n_spins = kDefaultSpins) {
    for (int i = 0; i < n_spins; i++) {
      if (epoch() != seen) return;
      pause_cpu();
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (epoch_.load(std::memory_order_seq_cst) == seen) epoch_.wait(seen, std::memory_order_seq_cst);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

  static constexpr int kDefaultSpins = 200;  // a few microseconds: about what a sleep and its wake-up cost

 private:
  alignas(kCacheLineBytes) std::atomic<uint32_t> epoch_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace les

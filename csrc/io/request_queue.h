// What waits to be read, demand before prefetch, first in first out within each, and a meter of busy time.
// Shared by the readers. Thread-safety: none; the reader's mutex guards it. Allocates only while it grows.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "io/async_reader.h"

namespace les {

class RequestQueue {
 public:
  struct Entry {
    ReadRequest request;
    int64_t submit_ns = 0;
  };

  void push(const ReadRequest& request, int64_t submit_ns = 0) {
    append(request.read_class == ReadClass::kDemand ? kDemandList : kPrefetchList, Entry{request, submit_ns});
  }

  // The next request to start: any demand before any prefetch.
  bool pop(Entry* out) { return take_first(kDemandList, out) || take_first(kPrefetchList, out); }
  // The next cancelled request, to be completed as such on a reader thread.
  bool pop_cancelled(Entry* out) { return take_first(kCancelledList, out); }

  // False when no such prefetch waits.
  bool promote(uint64_t tag) {
    Entry entry;
    if (!take_tag(kPrefetchList, tag, &entry)) return false;
    entry.request.read_class = ReadClass::kDemand;
    append(kDemandList, entry);
    return true;
  }

  // False when no such request waits.
  bool cancel(uint64_t tag) {
    Entry entry;
    if (!take_tag(kPrefetchList, tag, &entry) && !take_tag(kDemandList, tag, &entry)) return false;
    append(kCancelledList, entry);
    return true;
  }

  void cancel_all() {
    Entry entry;
    while (pop(&entry)) append(kCancelledList, entry);
  }

  bool has_waiting() const { return lists_[kDemandList].n != 0 || lists_[kPrefetchList].n != 0; }
  bool has_cancelled() const { return lists_[kCancelledList].n != 0; }

 private:
  enum ListIdx { kDemandList, kPrefetchList, kCancelledList, kListCount };
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Node {
    Entry entry;
    uint32_t prev = kNone, next = kNone;
  };
  struct List {
    uint32_t first = kNone, last = kNone, n = 0;
  };

  void append(ListIdx which, const Entry& entry) {
    uint32_t at = free_;
    if (at == kNone) {
      at = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
    } else {
      free_ = nodes_[at].next;
    }
    List& list = lists_[which];
    nodes_[at] = Node{entry, list.last, kNone};
    (list.last == kNone ? list.first : nodes_[list.last].next) = at;
    list.last = at;
    list.n++;
  }

  void take(ListIdx which, uint32_t at, Entry* out) {
    List& list = lists_[which];
    Node& node = nodes_[at];
    *out = node.entry;
    (node.prev == kNone ? list.first : nodes_[node.prev].next) = node.next;
    (node.next == kNone ? list.last : nodes_[node.next].prev) = node.prev;
    list.n--;
    node.next = free_;
    free_ = at;
  }

  bool take_first(ListIdx which, Entry* out) {
    if (lists_[which].first == kNone) return false;
    take(which, lists_[which].first, out);
    return true;
  }

  bool take_tag(ListIdx which, uint64_t tag, Entry* out) {
    for (uint32_t at = lists_[which].first; at != kNone; at = nodes_[at].next) {
      if (nodes_[at].entry.request.tag == tag) {
        take(which, at, out);
        return true;
      }
    }
    return false;
  }

  std::vector<Node> nodes_;
  std::array<List, kListCount> lists_;
  uint32_t free_ = kNone;
};

// Counts what a reader reports, and the time with at least one read in flight.
class StatsMeter {
 public:
  void begin(int64_t at_ns) {
    if (n_in_flight_++ == 0) busy_since_ns_ = at_ns;
  }
  void end(int64_t at_ns) {
    if (--n_in_flight_ == 0) stats_.busy_ns += at_ns - busy_since_ns_;
  }
  ReaderStats& counters() { return stats_; }
  // Including the read that is going on at now_ns.
  ReaderStats snapshot(int64_t at_ns) const {
    ReaderStats stats = stats_;
    if (n_in_flight_ > 0 && at_ns > busy_since_ns_) stats.busy_ns += at_ns - busy_since_ns_;
    return stats;
  }

 private:
  ReaderStats stats_;
  int64_t busy_since_ns_ = 0;
  int n_in_flight_ = 0;
};

}  // namespace les

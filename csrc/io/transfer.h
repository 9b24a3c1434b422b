// One read request as a series of system reads: where the next one goes, and what its answer means.
// Shared by every reader, so that alignment, short reads and retries are decided in one place. No threads, no waiting.
// Thread-safety: none; one owner at a time.
//
// 1. Every step makes progress or ends the transfer: retries without progress are bounded by kMaxStuck.
// 2. A direct step has offset, length and memory at multiples of the file's alignment; the unaligned rest of an extent
//    goes through the bounce memory, its aligned middle straight to dst where dst and offset are congruent.
// 3. EINVAL on a direct step turns direct I/O off for the file and continues buffered.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/status.h"
#include "io/async_reader.h"

namespace les {

constexpr uint64_t kBounceBytes = kMiB;           // per read in flight; an expert slice of the usual models fits
constexpr uint64_t kMaxStepBytes = 16 * kMiB;     // longest single system read
constexpr int kMaxStuck = 1000;                   // EINTR or EAGAIN in a row before the read is given up

// Bounce memory for n reads, in one piece and in huge pages where the system has them: a direct read into scattered
// 4 KiB pages is split at the device's limit of segments, and reached half the bandwidth where this was measured.
class BouncePool {
 public:
  // of(i) is empty when there is no memory; unaligned reads then fail with kOutOfMemory.
  explicit BouncePool(int n);
  std::span<uint8_t> of(int idx);

 private:
  Buffer memory_;
  uint8_t* first_ = nullptr;
};

struct TransferStep {
  int fd = -1;
  bool is_direct = false;
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
  iovec parts[3];
  int n_parts = 0;
};

class Transfer {
 public:
  // bounce: at a multiple of kPageBytes, kBounceBytes long, owned by the caller; needed for direct I/O only.
  void start(const ReadRequest& request, std::span<uint8_t> bounce, bool allow_direct = true);
  bool is_done() const { return is_done_; }
  // The next system read, while !is_done(); valid until advance.
  const TransferStep& step() const { return step_; }
  // The answer to step(): bytes read, or -errno.
  void advance(int64_t result);

  const ReadRequest& request() const { return request_; }
  const Status& status() const { return status_; }      // when done
  bool is_all_direct() const { return is_all_direct_; }
  uint64_t device_bytes() const { return device_bytes_; }
  uint64_t n_retries() const { return n_retries_; }

 private:
  void plan_step();
  void fail(int error, const char* what);

  ReadRequest request_;
  std::span<uint8_t> bounce_;
  TransferStep step_;
  Status status_;
  uint64_t pos_ = 0, end_ = 0;         // file offsets: first byte still missing, one past the last
  uint64_t device_bytes_ = 0;
  uint64_t n_retries_ = 0;
  int n_stuck_ = 0;
  bool allow_direct_ = true;
  bool is_done_ = false;
  bool is_all_direct_ = true;
};

}  // namespace les

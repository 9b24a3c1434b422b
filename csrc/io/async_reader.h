// The contract of every reader: requests go in, completions come out on the reader's own threads.
// io knows no experts. Implementations: pread_reader, uring_reader; decorators: throttled_reader, faulty_reader.
//
// 1. submit, promote and cancel are called from one thread; they never block on a read.
// 2. Every submitted request completes exactly once: with the bytes in dst, with an error, or as cancelled.
// 3. Demand requests start before any prefetch request that has not started.
// 4. Short reads, EINTR and EAGAIN are retried inside; a read past the end of a file is kIo naming file, offset, wanted
//    and got.
// 5. The destructor cancels what has not started and waits for what has; no completion is delivered after it returns.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/file.h"

namespace les {

enum class ReadClass : uint8_t { kDemand = 0, kPrefetch = 1 };

struct ReadRequest {
  const File* file = nullptr;  // outlives the request
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
  uint8_t* dst = nullptr;  // size_bytes, owned by the caller until completion
  uint64_t tag = 0;  // the caller's name for the request; unique among those in flight
  ReadClass read_class = ReadClass::kDemand;
};

struct ReadCompletion {
  uint64_t tag = 0;
  Status status;  // kCancelled when it was cancelled before it started
  int64_t start_ns = 0, end_ns = 0;  // when the device worked on it
};

// Called on a reader thread, possibly several at once; must not block.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  virtual void on_read_complete(ReadCompletion completion) = 0;
};

struct ReaderStats {
  uint64_t n_reads = 0;
  uint64_t read_bytes = 0;  // useful bytes delivered
  uint64_t device_bytes = 0;  // including alignment overhead
  uint64_t n_direct = 0;  // reads that bypassed the page cache
  uint64_t n_buffered = 0;
  uint64_t n_retries = 0;  // short reads and interruptions
  int64_t busy_ns = 0;  // time with at least one read in flight
};

class AsyncReader {
 public:
  virtual ~AsyncReader() = default;
  virtual void submit(const ReadRequest& request) = 0;
  virtual void promote(uint64_t tag) = 0;  // prefetch becomes demand; unknown tags are ignored
  virtual void cancel(uint64_t tag) = 0;  // only if it has not started; unknown tags are ignored
  virtual ReaderStats stats() const = 0;
  virtual std::string name() const = 0;  // "pread x4 direct"
};

}  // namespace les

#include "io/make_reader.h"

#include <algorithm>

#include "io/pread_reader.h"
#include "io/uring_reader.h"

namespace les {
namespace {

constexpr int kMaxReaderLanes = 256;
#ifdef __ANDROID__
constexpr int kDefaultLanes = 2;  // phones' flash is saturated by two large reads
#else
constexpr int kDefaultLanes = 4;  // 0.97 of the bandwidth of eight, measured as in make_reader.h
#endif
constexpr int kMaxDefaultFlashLanes = 8;

Result<std::unique_ptr<AsyncReader>> make_real_reader(const ReaderOptions& options, ReadHook hook,
                                                      CompletionSink* sink) {
  const int lanes = options.lanes == 0 ? default_lanes(options) : options.lanes;
  if (options.kind == "uring") return make_uring_reader({.depth = lanes, .hook = std::move(hook)}, sink);
  std::unique_ptr<AsyncReader> reader = make_pread_reader(lanes, sink, std::move(hook));
  if (reader == nullptr) return make_error(Code::kOutOfMemory, "pread reader: the system starts no thread");
  return reader;
}

}  // namespace

int default_lanes(const ReaderOptions& options) {
  if (!options.flash) return kDefaultLanes;
  // The simulation decides what runs at a time; the reader under it must only keep up.
  return std::clamp(options.flash->lanes, 1, kMaxDefaultFlashLanes);
}

uint64_t plan_reader_bytes(const ReaderOptions& options) {
  return kBounceBytes * static_cast<uint64_t>(options.lanes == 0 ? default_lanes(options) : options.lanes);
}

Result<std::unique_ptr<AsyncReader>> make_reader(const ReaderOptions& options, CompletionSink* sink) {
  if (options.kind != "auto" && options.kind != "pread" && options.kind != "uring") {
    return make_error(Code::kInvalidArgument, "reader '%s' is unknown: expected auto, pread or uring",
                      options.kind.c_str());
  }
  if (options.lanes < 0 || options.lanes > kMaxReaderLanes) {
    return make_error(Code::kInvalidArgument, "%d reader lanes: expected 1 to %d, or 0 for the default", options.lanes,
                      kMaxReaderLanes);
  }
  const ReaderFactory make_inner = [&options](CompletionSink* to) -> Result<std::unique_ptr<AsyncReader>> {
    if (!options.fault) return make_real_reader(options, {}, to);
    return make_faulty_reader(*options.fault, to, [&options](ReadHook hook, CompletionSink* inner_to) {
      return make_real_reader(options, std::move(hook), inner_to);
    });
  };
  if (!options.flash) return make_inner(sink);
  return make_throttled_reader(*options.flash, options.clock != nullptr ? options.clock : &system_clock(), sink,
                               make_inner);
}

}  // namespace les

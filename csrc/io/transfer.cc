#include "io/transfer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <system_error>

namespace les {

BouncePool::BouncePool(int n) {
  constexpr uint64_t kHugeBytes = 2 * kMiB;
  const uint64_t used_bytes = align_up(static_cast<uint64_t>(n) * kBounceBytes, kHugeBytes);
  Result<Buffer> made = make_buffer(used_bytes + kHugeBytes);
  if (!made.is_ok()) return;
  memory_ = std::move(*made);
  first_ = memory_.data() + (align_up(reinterpret_cast<uintptr_t>(memory_.data()), kHugeBytes) -
                             reinterpret_cast<uintptr_t>(memory_.data()));
#ifdef MADV_HUGEPAGE
  madvise(first_, used_bytes, MADV_HUGEPAGE);
#endif
}

std::span<uint8_t> BouncePool::of(int idx) {
  if (first_ == nullptr) return {};
  return {first_ + static_cast<uint64_t>(idx) * kBounceBytes, kBounceBytes};
}

void Transfer::start(const ReadRequest& request, std::span<uint8_t> bounce, bool allow_direct) {
  request_ = request;
  bounce_ = bounce;
  status_ = Status::ok();
  pos_ = request.offset_bytes;
  device_bytes_ = 0;
  n_retries_ = 0;
  n_stuck_ = 0;
  allow_direct_ = allow_direct;
  is_done_ = false;
  is_all_direct_ = true;
  if (request.file == nullptr || (request.dst == nullptr && request.size_bytes != 0)) {
    status_ = make_error(Code::kInvalidArgument, "read without a %s", request.file == nullptr ? "file" : "destination");
    is_done_ = true;
    return;
  }
  if (!checked_add(request.offset_bytes, request.size_bytes, &end_) ||
      end_ > static_cast<uint64_t>(INT64_MAX) - kMaxStepBytes) {
    status_ = make_error(Code::kInvalidArgument, "%s: read of %" PRIu64 " bytes at offset %" PRIu64 " overflows",
                         request.file->path().c_str(), request.size_bytes, request.offset_bytes);
    is_done_ = true;
    return;
  }
  plan_step();
}

void Transfer::plan_step() {
  if (pos_ == end_) {
    is_done_ = true;
    return;
  }
  const File& file = *request_.file;
  uint8_t* dst = request_.dst + (pos_ - request_.offset_bytes);
  step_.n_parts = 0;
  const auto add_part = [this](uint8_t* to, uint64_t size_bytes) {
    if (size_bytes != 0) step_.parts[step_.n_parts++] = iovec{to, static_cast<size_t>(size_bytes)};
  };
  step_.fd = allow_direct_ ? file.direct_fd() : -1;
  step_.is_direct = step_.fd >= 0;
  if (!step_.is_direct) {
    is_all_direct_ = false;
    step_.fd = file.buffered_fd();
    step_.offset_bytes = pos_;
    step_.size_bytes = std::min(end_ - pos_, kMaxStepBytes);
    add_part(dst, step_.size_bytes);
    return;
  }

  const uint64_t unit = file.direct_alignment_bytes();
  const uint64_t begin = align_down(pos_, unit);
  const uint64_t stop = align_up(end_, unit);
  step_.offset_bytes = begin;
  if ((reinterpret_cast<uintptr_t>(dst) - pos_) % unit == 0) {
    step_.size_bytes = std::min(stop - begin, kMaxStepBytes);
    const uint64_t head_bytes = begin < pos_ ? unit : 0;
    // One unit may hold both ends of a small extent; it is then all head.
    const uint64_t tail_bytes = begin + step_.size_bytes > end_ && step_.size_bytes > head_bytes ? unit : 0;
    if (bounce_.size() >= 2 * unit || head_bytes + tail_bytes == 0) {
      add_part(bounce_.data(), head_bytes);
      add_part(dst + (begin + head_bytes - pos_), step_.size_bytes - head_bytes - tail_bytes);
      add_part(bounce_.data() + unit, tail_bytes);
      return;
    }
  } else if (bounce_.size() >= unit) {
    step_.size_bytes = std::min(stop - begin, align_down(bounce_.size(), unit));
    add_part(bounce_.data(), step_.size_bytes);
    return;
  }
  status_ = make_error(Code::kOutOfMemory,
                       "%s: no bounce memory for an unaligned read of %" PRIu64 " bytes at offset %" PRIu64,
                       file.path().c_str(), request_.size_bytes, request_.offset_bytes);
  is_done_ = true;
}

void Transfer::advance(int64_t result) {
  if (result < 0) {
    const int error = static_cast<int>(-result);
    if (error == EINTR || error == EAGAIN) {
      n_retries_++;
      if (++n_stuck_ > kMaxStuck) return fail(error, "gave up");
    } else if (step_.is_direct && (error == EINVAL || error == EOPNOTSUPP)) {
      n_retries_++;
      request_.file->disable_direct();
    } else {
      return fail(error, "failed");
    }
    return plan_step();
  }
  if (result == 0) return fail(0, "reached the end of the file");

  n_stuck_ = 0;
  const auto n_read = static_cast<uint64_t>(result);
  device_bytes_ += n_read;
  const uint64_t new_pos = std::min(step_.offset_bytes + n_read, end_);
  uint64_t part_begin = step_.offset_bytes;
  for (int i = 0; i < step_.n_parts; i++) {
    const auto* base = static_cast<const uint8_t*>(step_.parts[i].iov_base);
    const uint64_t part_end = part_begin + step_.parts[i].iov_len;
    const uint64_t from = std::max(part_begin, pos_), to = std::min(part_end, new_pos);
    if (from < to) {
      uint8_t* dst = request_.dst + (from - request_.offset_bytes);
      if (base + (from - part_begin) != dst) std::memcpy(dst, base + (from - part_begin), to - from);
    }
    part_begin = part_end;
  }
  if (!step_.is_direct) request_.file->drop_cached(step_.offset_bytes, n_read);
  if (new_pos < end_ && n_read < step_.size_bytes) n_retries_++;
  // Less than the unit's unaligned head came: only the buffered file can start where the missing bytes do.
  if (new_pos <= pos_) allow_direct_ = false;
  pos_ = std::max(pos_, new_pos);
  plan_step();
}

void Transfer::fail(int error, const char* what) {
  const std::string reason = error == 0 ? "" : ": " + std::generic_category().message(error);
  status_ = make_error(Code::kIo, "%s: read at offset %" PRIu64 " %s%s: wanted %" PRIu64 " bytes, got %" PRIu64,
                       request_.file->path().c_str(), request_.offset_bytes, what, reason.c_str(), request_.size_bytes,
                       pos_ - request_.offset_bytes);
  is_done_ = true;
}

}  // namespace les

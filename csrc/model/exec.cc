#include "model/exec.h"

#include <algorithm>
#include <new>

#include "base/bytes.h"

namespace les {

Status Scratch::reserve(size_t size_bytes) {
  blocks_.clear();
  block_ = used_ = total_ = high_water_bytes_ = 0;
  LES_ASSIGN_OR_RETURN(Buffer block, make_buffer(std::max<size_t>(size_bytes, kPageBytes)));
  blocks_.push_back(std::move(block));
  return Status::ok();
}

uint8_t* Scratch::take(size_t size_bytes) {
  const size_t size = align_up(size_bytes, 64);
  while (block_ >= blocks_.size() || used_ + size > blocks_[block_].size_bytes()) {
    if (block_ < blocks_.size()) ++block_;
    used_ = 0;
    if (block_ >= blocks_.size()) {
      auto grown = make_buffer(std::max<size_t>(size, kMiB));
      if (!grown.is_ok()) throw std::bad_alloc();  // as any allocation that fails; the engine turns it into a Status
      blocks_.push_back(std::move(*grown));
    }
  }
  uint8_t* at = blocks_[block_].data() + used_;
  used_ += size;
  total_ += size;
  high_water_bytes_ = std::max(high_water_bytes_, total_);
  return at;
}

}  // namespace les

// The weights that stay in memory: reads every bound tensor and points its views at it; and embedding rows, which are
// read on demand unless the head shares them. Thread-safety: immutable after load_trunk.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/arena.h"
#include "io/file.h"
#include "model/weights.h"

namespace les {

using ProgressFn = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

using OpenFiles = std::vector<std::unique_ptr<File>>;  // one for each shard, in the store's order

// The returned buffer owns what the views point to.
Result<Buffer> load_trunk(const WeightBinder& binder, const OpenFiles& files, const ProgressFn& progress);

class EmbeddingRows {
 public:
  static Result<EmbeddingRows> make(const GgufFile& gguf, const OpenFiles& files, const Matrix* resident);
  // out [tokens.size(), d_model]; ids must be in range.
  Status load(std::span<const int32_t> tokens, float* out) const;

 private:
  TensorInfo info_;
  uint64_t row_bytes_ = 0;
  const File* file_ = nullptr;
  const Matrix* resident_ = nullptr;
};

}  // namespace les

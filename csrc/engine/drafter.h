// A draft model's file, loaded beside its target. Its memory is part of the engine's budget until the engine goes.
// Thread-safety: immutable after open_drafter; runs under the engine's lock.
#pragma once

#include <memory>
#include <string>

#include "engine/trunk.h"
#include "model/dspark.h"

namespace les {

struct Drafter {
  DraftModel model;
  std::shared_ptr<GgufFile> gguf;
  OpenFiles files;
  Buffer trunk;
  EmbeddingRows embedding;
  EmbedFn own_embed;       // empty: the target's
  uint64_t trunk_bytes = 0;
};

// Headers only: what it will take.
Result<std::shared_ptr<Drafter>> examine_drafter(const std::string& path, const ModelConfig& target,
                                                 std::unique_ptr<WeightBinder>* binder);
Status load_drafter(const WeightBinder& binder, Drafter* drafter);

}  // namespace les

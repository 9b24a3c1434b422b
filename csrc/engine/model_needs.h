// From an open file to what running it will cost: the part that planning and loading share.
#pragma once

#include <memory>

#include "engine/memory_plan.h"
#include "engine/options.h"
#include "model/graph.h"
#include "model/weights.h"
#include "store/expert_store.h"

namespace les {

struct ModelParts {
  std::shared_ptr<GgufFile> gguf;
  std::shared_ptr<ExpertStore> store;
  std::unique_ptr<ModelGraph> graph;
  std::unique_ptr<WeightBinder> binder;   // views point into graph
  StateSpec state_spec;
  std::vector<ExpertLayer> expert_layers; // as the graph uses them: without prediction blocks
  int context = 0;
  MemoryNeeds needs;
};

// Opens headers, builds and binds the graph, adds up its needs. Reads no tensor data.
Result<ModelParts> examine_model(const std::string& path, const EngineOptions& options);

// Copies of recurrent state that a session keeps for going back to the start of a reply.
constexpr int kCheckpoints = 2;

}  // namespace les

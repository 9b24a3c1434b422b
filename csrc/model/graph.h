// The seam of model families: what one has to provide, and the driver that runs its layers.
// A family is one file in arch/ and one line in arch/registry.cc.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/exec.h"
#include "model/moe.h"
#include "model/state.h"
#include "model/weights.h"

namespace les {

// Embedding rows are read on demand (they are never all needed). out [tokens.size(), d_model].
using EmbedFn = std::function<Status(std::span<const int32_t> tokens, float* out)>;

// One forward pass over n tokens at positions position .. position + n - 1.
struct Step {
  Exec* exec = nullptr;
  State* state = nullptr;
  MoeRunner* moe = nullptr;
  std::span<const int32_t> tokens;
  int n = 0;
  int position = 0;
  int n_logits = 1;               // logits of the last n_logits tokens are wanted
  const EmbedFn* embed = nullptr;
  float* logits = nullptr;        // [n_logits, n_vocab]
  std::span<const int> tap_layers;  // whose inputs are wanted; the number of layers: the last one's output
  float* taps = nullptr;            // [n, tap_layers.size(), d_model]
  const std::atomic<bool>* is_cancelled = nullptr;  // looked at between layers
};

class ModelGraph {
 public:
  explicit ModelGraph(ModelConfig config) : config_(std::move(config)) {}
  virtual ~ModelGraph() = default;
  ModelGraph(const ModelGraph&) = delete;
  ModelGraph& operator=(const ModelGraph&) = delete;

  const ModelConfig& config() const { return config_; }

  // Checks the file's tensors and keys, and binds what the family needs; called once, before any weight is loaded.
  virtual Status bind(WeightBinder& binder) = 0;
  // Called once the trunk is in memory: tables that depend on weights.
  virtual Status prepare() { return Status::ok(); }
  virtual LayerStateSpec layer_state(int layer) const;
  // Floats of scratch that one token of a step needs at most.
  virtual size_t scratch_floats_per_token() const;
  // The routed experts of a layer, or null for a layer without.
  virtual const MoeSpec* moe_spec(int layer) const = 0;

  // The head's matrix when it is the token embedding as well, else null.
  const Matrix* resident_embedding() const { return is_tied_ ? &output_ : nullptr; }

  const Matrix& head() const { return output_; }

  // Runs the step: embedding, layers, head.
  Status forward(Step& step);

 protected:
  // x [n, d_model], the residual stream, in place.
  virtual Status run_layer(Step& step, int layer, float* x) = 0;
  virtual void after_embedding(Step&, float* x) { (void)x; }
  // Logits from the residual stream's last rows; the default is final norm and head.
  virtual void run_head(Step& step, const float* x, int n, float* logits);

  // token_embd, output_norm and output (or the tied embedding).
  Status bind_head(WeightBinder& binder, const char* norm_name = "output_norm.weight");

  ModelConfig config_;
  Matrix output_;
  Vector output_norm_, output_norm_bias_, output_bias_;
  bool is_tied_ = false;
};

using MakeGraphFn = std::unique_ptr<ModelGraph> (*)(const ModelConfig& config);

// Refuses a family that is not known by name, with the list of those that are.
Result<std::unique_ptr<ModelGraph>> make_graph(const ModelConfig& config);

}  // namespace les

// Routed experts of one layer: route, get the experts through the scheduler, compute each as it is ready, and add the
// results in router order, so that the sum does not depend on what arrived first.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "model/ops.h"
#include "model/router.h"
#include "sched/scheduler.h"
#include "store/expert_store.h"

namespace les {

struct Step;
class MoeProbe;

struct MoeSpec {
  RouterSpec router;
  Act act = Act::kSilu;
  int d_in = 0;                     // width of the experts' input and output
  Matrix gate_inp;                  // router [n_expert, d_model]
  Vector gate_inp_bias, selection_bias;
  Vector gate_bias, up_bias;        // [n_expert, ff]
  Vector down_bias;                 // [n_expert, d_in]
  Vector down_scale;                // [n_expert] on the expert's output
  // For guessing this layer's experts from an earlier layer's residual stream: the norm before its router, or null.
  const Vector* router_norm = nullptr;
  float router_eps = 1e-6f;
};

// Fills router from the config (gating: the family's default where the file does not say) and binds
// blk.<layer>.ffn_gate_inp and exp_probs_b, and expert biases and scales where the file has them.
// Checks that the store's experts have the shapes that d_in and expert_ff ask for.
Status bind_moe(WeightBinder& binder, const ModelConfig& config, int layer, Gating default_gating, bool default_norm,
                MoeSpec* spec);

struct Routing {
  const int* chosen = nullptr;      // [n, n_used], highest score first
  const float* weights = nullptr;   // [n, n_used]
};

class MoeRunner {
 public:
  MoeRunner(const ExpertStore& store, Scheduler& scheduler) : store_(store), scheduler_(scheduler) {}

  // Routing of the tokens whose router input is x [n, d_model]. Lives in scratch.
  Routing route(Step& step, int layer, const MoeSpec& spec, const float* x);

  // y [n, d_in] = sum of the chosen experts' outputs for x [n, d_in].
  // while_reading runs once the missing experts have been asked for: the place for the shared expert. residual
  // [n, d_model], the stream after attention (and after while_reading, if that adds to it), serves to guess the next
  // layer's experts; null: no guess.
  Status experts(Step& step, int layer, const MoeSpec& spec, const Routing& routing, const float* x,
                 const float* residual, float* y, const std::function<void()>& while_reading = {});

  // Both, for families whose router and experts read the same x.
  Status run(Step& step, int layer, const MoeSpec& spec, const float* x, const float* residual, float* y,
             const std::function<void()>& while_reading = {});

  // For routers that see their input long before the experts compute: the reads start now. Not a guess.
  void announce(Step& step, int layer, const Routing& routing);

  // specs by layer, null for layers without experts; they outlive the runner.
  void set_specs(std::vector<const MoeSpec*> specs) { specs_ = std::move(specs); }

  // Shown all that experts() computes; null (the usual case): nobody looks.
  void set_probe(MoeProbe* probe) { probe_ = probe; }

  // Experts chosen since start_recording: per MoE layer in order of execution, [n, n_used].
  void start_recording() { recorded_.clear(); }
  const std::vector<std::vector<int>>& recorded() const { return recorded_; }

 private:
  void look_ahead(Step& step, int layer, const float* residual);

  const ExpertStore& store_;
  Scheduler& scheduler_;
  MoeProbe* probe_ = nullptr;
  std::vector<const MoeSpec*> specs_;
  std::vector<std::vector<int>> recorded_;   // by layer index; empty for layers without experts
};

}  // namespace les

// What calibration sees of the routed experts: uses and second moments by expert, samples of whole layers, and a
// disturbance added to one layer's output. Attached to a MoeRunner only while something is measured.
// Thread-safety: as MoeRunner; a probe serves one engine. After a failed step the figures hold a part of that step.
#pragma once

#include <cstdint>
#include <vector>

#include "model/moe.h"

namespace les {

struct MoeProbeOptions {
  bool moments = false;                 // gather the sums below
  std::vector<int> sample_layers;       // layers whose inputs and outputs are kept
  int max_samples = 0;                  // tokens kept of each
  int disturbed_layer = -1;             // its output gets disturbance [n, d_in], a row for each token in order
  std::vector<float> disturbance;
};

struct MoeProbeLayer {
  int layer = 0, n_expert = 0, n_used = 0, d_in = 0, ff = 0;
  // By expert, each use weighted by the square of its routing weight w, as its error in the layer's output is.
  std::vector<uint64_t> n_uses;
  std::vector<double> weight, weight_sq;      // sums of w and w^2
  std::vector<double> in_sq;                  // [n_expert, d_in] sums of w^2 x^2 of what gate and up read
  std::vector<double> mid_sq;                 // [n_expert, ff] the same of what down reads
  std::vector<double> out_sq;                 // sums of w^2 |output|^2
  int n_samples = 0;
  std::vector<float> x, y;                    // [n_samples, d_in] input of the experts, their weighted sum
  std::vector<int32_t> chosen;                // [n_samples, n_used]
  std::vector<float> weights;                 // [n_samples, n_used] with the expert's own scale, where it has one
};

class MoeProbe {
 public:
  // specs by layer, null for layers without experts.
  MoeProbe(MoeProbeOptions options, const std::vector<const MoeSpec*>& specs, const ExpertStore& store);

  // The step's routing; column of each (token, rank) pair in the order in which experts are computed.
  void begin(int layer, const MoeSpec& spec, const Routing& routing, const std::vector<int>& column, const float* x,
             int n);
  // One expert's columns, the first of them column `first`: x rows ld floats apart, mid [n, ff], out [n, d_in].
  void expert(int layer, uint32_t id, int first, int n, const float* x, size_t ld, const float* mid, const float* out);
  // The layer's output y [n, d_in], to which the disturbance is added.
  void end(int layer, int n, float* y);

  // All that was gathered; the probe is of no use after this.
  std::vector<MoeProbeLayer> take_layers() { return std::move(layers_); }

 private:
  MoeProbeLayer& at(int layer) { return layers_[static_cast<size_t>(index_[static_cast<size_t>(layer)])]; }

  MoeProbeOptions options_;
  std::vector<MoeProbeLayer> layers_;
  std::vector<int> index_;                    // layer -> place in layers_
  std::vector<bool> is_sampled_;              // by layer
  std::vector<float> column_weight_;          // of the step
  int n_kept_ = 0;                            // of the step's tokens
  size_t n_disturbed_ = 0;                    // rows used so far
};

}  // namespace les

#include "model/moe_probe.h"

#include <algorithm>

namespace les {

namespace {

// sums[i] += a * x[i]^2
void add_squares(const float* x, int n, double a, double* sums) {
  for (int i = 0; i < n; ++i) {
    const auto v = static_cast<double>(x[i]);
    sums[i] += a * v * v;
  }
}

}  // namespace

MoeProbe::MoeProbe(MoeProbeOptions options, const std::vector<const MoeSpec*>& specs, const ExpertStore& store)
    : options_(std::move(options)) {
  index_.assign(specs.size(), -1);
  is_sampled_.assign(specs.size(), false);
  for (size_t l = 0; l < specs.size(); ++l) {
    if (specs[l] == nullptr) continue;
    index_[l] = static_cast<int>(layers_.size());
    MoeProbeLayer& layer = layers_.emplace_back();
    layer.layer = static_cast<int>(l);
    layer.n_expert = specs[l]->router.n_expert;
    layer.n_used = specs[l]->router.n_used;
    layer.d_in = specs[l]->d_in;
    layer.ff = static_cast<int>(store.layer(static_cast<uint32_t>(l)).slices[kUp].n_out);
    if (!options_.moments) continue;
    const auto n = static_cast<size_t>(layer.n_expert);
    layer.n_uses.assign(n, 0);
    layer.weight.assign(n, 0);
    layer.weight_sq.assign(n, 0);
    layer.out_sq.assign(n, 0);
    layer.in_sq.assign(n * static_cast<size_t>(layer.d_in), 0);
    layer.mid_sq.assign(n * static_cast<size_t>(layer.ff), 0);
  }
  for (const int l : options_.sample_layers) {
    if (l >= 0 && static_cast<size_t>(l) < specs.size()) is_sampled_[static_cast<size_t>(l)] = true;
  }
}

void MoeProbe::begin(int layer, const MoeSpec& spec, const Routing& routing, const std::vector<int>& column,
                     const float* x, int n) {
  MoeProbeLayer& out = at(layer);
  const auto used = static_cast<size_t>(out.n_used);
  const auto weight = [&](size_t pair) {
    return spec.down_scale ? routing.weights[pair] * spec.down_scale.data[routing.chosen[pair]] : routing.weights[pair];
  };
  column_weight_.resize(column.size());
  for (size_t pair = 0; pair < column.size(); ++pair) column_weight_[static_cast<size_t>(column[pair])] = weight(pair);
  n_kept_ = 0;
  if (!is_sampled_[static_cast<size_t>(layer)]) return;
  n_kept_ = std::clamp(options_.max_samples - out.n_samples, 0, n);
  const auto kept = static_cast<size_t>(n_kept_);
  out.x.insert(out.x.end(), x, x + kept * static_cast<size_t>(out.d_in));
  out.chosen.insert(out.chosen.end(), routing.chosen, routing.chosen + kept * used);
  for (size_t pair = 0; pair < kept * used; ++pair) out.weights.push_back(weight(pair));
}

void MoeProbe::expert(int layer, uint32_t id, int first, int n, const float* x, size_t ld, const float* mid,
                      const float* out) {
  if (!options_.moments) return;
  MoeProbeLayer& sums = at(layer);
  const auto e = static_cast<size_t>(id);
  const auto d = static_cast<size_t>(sums.d_in), ff = static_cast<size_t>(sums.ff);
  sums.n_uses[e] += static_cast<uint64_t>(n);
  for (int c = 0; c < n; ++c) {
    const auto i = static_cast<size_t>(c);
    const auto w = static_cast<double>(column_weight_[static_cast<size_t>(first) + i]);
    sums.weight[e] += w;
    sums.weight_sq[e] += w * w;
    add_squares(x + i * ld, sums.d_in, w * w, sums.in_sq.data() + e * d);
    add_squares(mid + i * ff, sums.ff, w * w, sums.mid_sq.data() + e * ff);
    for (size_t k = 0; k < d; ++k) {
      const double v = w * static_cast<double>(out[i * d + k]);
      sums.out_sq[e] += v * v;
    }
  }
}

void MoeProbe::end(int layer, int n, float* y) {
  MoeProbeLayer& out = at(layer);
  const auto d = static_cast<size_t>(out.d_in);
  if (n_kept_ > 0) {
    out.y.insert(out.y.end(), y, y + static_cast<size_t>(n_kept_) * d);
    out.n_samples += n_kept_;
  }
  if (layer != options_.disturbed_layer) return;
  const size_t at_row = std::min(n_disturbed_ * d, options_.disturbance.size());
  const size_t count = std::min(options_.disturbance.size() - at_row, static_cast<size_t>(n) * d);
  for (size_t i = 0; i < count; ++i) y[i] += options_.disturbance[at_row + i];
  n_disturbed_ += static_cast<size_t>(n);
}

}  // namespace les

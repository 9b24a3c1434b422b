#include "model/moe.h"

#include <algorithm>
#include <cstring>

#include "model/graph.h"
#include "model/moe_probe.h"

namespace les {

Status bind_moe(WeightBinder& binder, const ModelConfig& config, int layer, Gating default_gating, bool default_norm,
                MoeSpec* spec) {
  const auto name = [layer](const char* suffix) { return block_name(layer, suffix); };
  spec->router.gating = config.gating == Gating::kNone ? default_gating : config.gating;
  spec->router.n_expert = config.n_expert;
  spec->router.n_used = config.n_expert_used;
  spec->router.n_group = config.n_group;
  spec->router.n_group_used = config.n_group_used;
  spec->router.norm_weights = config.has_weights_norm ? config.weights_norm : default_norm;
  spec->router.weights_scale = config.weights_scale;
  if (spec->d_in == 0) spec->d_in = config.d_model;
  const int n = config.n_expert, ff = config.expert_ff;
  LES_RETURN_IF_ERROR(binder.matrix(name("ffn_gate_inp.weight"), config.d_model, n, &spec->gate_inp));
  LES_RETURN_IF_ERROR(binder.optional_vector(name("ffn_gate_inp.bias"), n, &spec->gate_inp_bias));
  LES_RETURN_IF_ERROR(binder.optional_vector(name("exp_probs_b.bias"), n, &spec->selection_bias));
  LES_RETURN_IF_ERROR(binder.optional_vector(name("ffn_gate_exps.bias"), n * ff, &spec->gate_bias));
  LES_RETURN_IF_ERROR(binder.optional_vector(name("ffn_up_exps.bias"), n * ff, &spec->up_bias));
  LES_RETURN_IF_ERROR(binder.optional_vector(name("ffn_down_exps.scale"), n, &spec->down_scale));
  return binder.optional_vector(name("ffn_down_exps.bias"), n * spec->d_in, &spec->down_bias);
}

Routing MoeRunner::route(Step& step, int layer, const MoeSpec& spec, const float* x) {
  Exec& exec = *step.exec;
  const auto used = static_cast<size_t>(spec.router.n_used);
  const auto n = static_cast<size_t>(step.n);
  auto* chosen = exec.scratch->alloc<int>(n * used);
  auto* weights = exec.scratch->alloc<float>(n * used);
  ScratchScope scope(*exec.scratch);
  const auto n_expert = static_cast<size_t>(spec.router.n_expert);
  auto* logits = exec.scratch->alloc<float>(n * n_expert);
  matmul(exec, spec.gate_inp, spec.gate_inp_bias, quantize(exec, x, step.n, spec.gate_inp.n_in), logits);
  exec.pool->parallel_for(step.n, 8, [&](int64_t begin, int64_t end, int) {
    for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t) {
      choose_experts(spec.router, logits + t * n_expert, spec.selection_bias.data, chosen + t * used,
                     weights + t * used);
    }
  });
  recorded_.resize(std::max(recorded_.size(), static_cast<size_t>(layer) + 1));
  std::vector<int>& record = recorded_[static_cast<size_t>(layer)];
  record.insert(record.end(), chosen, chosen + n * used);
  return {chosen, weights};
}

namespace {

// The step's (token, rank) pairs, grouped by expert. A pair's place in this order is its column.
struct Columns {
  std::vector<uint32_t> experts;      // distinct, ascending
  std::vector<int> first;             // first column of each, and the end
  std::vector<int> token;             // by column
  std::vector<int> column;            // by token * n_used + rank
};

Columns group_by_expert(const RouterSpec& spec, const int* chosen, int n) {
  std::vector<int> count(static_cast<size_t>(spec.n_expert) + 1, 0);
  const int n_pairs = n * spec.n_used;
  for (int i = 0; i < n_pairs; ++i) ++count[static_cast<size_t>(chosen[i])];
  Columns columns;
  std::vector<int> next(static_cast<size_t>(spec.n_expert));
  int at = 0;
  for (int e = 0; e < spec.n_expert; ++e) {
    next[static_cast<size_t>(e)] = at;
    if (count[static_cast<size_t>(e)] == 0) continue;
    columns.experts.push_back(static_cast<uint32_t>(e));
    columns.first.push_back(at);
    at += count[static_cast<size_t>(e)];
  }
  columns.first.push_back(at);
  columns.token.resize(static_cast<size_t>(n_pairs));
  columns.column.resize(static_cast<size_t>(n_pairs));
  for (int i = 0; i < n_pairs; ++i) {
    const int column = next[static_cast<size_t>(chosen[i])]++;
    columns.column[static_cast<size_t>(i)] = column;
    columns.token[static_cast<size_t>(column)] = i / spec.n_used;
  }
  return columns;
}

// Columns of x in the order of `tokens`.
Activations gather(Exec& exec, const Activations& x, const int* tokens, int n) {
  if (x.n_cols == 1) {
    Activations same = x;
    same.n_cols = n;   // n is 1 too: a token chooses an expert once
    return same;
  }
  const auto width = static_cast<size_t>(x.n_in);
  auto* f32 = exec.scratch->alloc<float>(width * static_cast<size_t>(n));
  Activations picked{f32, nullptr, nullptr, nullptr, width, x.n_in, n};
  int8_t* q8 = nullptr;
  float *scales = nullptr, *sums = nullptr;
  const size_t blocks = width / kActBlock;
  if (x.q8 != nullptr) {
    picked.q8 = q8 = exec.scratch->alloc<int8_t>(width * static_cast<size_t>(n));
    picked.scale = scales = exec.scratch->alloc<float>(blocks * static_cast<size_t>(n));
    picked.sum = sums = exec.scratch->alloc<float>(blocks * static_cast<size_t>(n));
  }
  for (int c = 0; c < n; ++c) {
    const auto from = static_cast<size_t>(tokens[c]), to = static_cast<size_t>(c);
    std::memcpy(f32 + to * width, x.f32 + from * width, width * sizeof(float));
    if (q8 == nullptr) continue;
    std::memcpy(q8 + to * width, x.q8 + from * width, width);
    std::memcpy(scales + to * blocks, x.scale + from * blocks, blocks * sizeof(float));
    std::memcpy(sums + to * blocks, x.sum + from * blocks, blocks * sizeof(float));
  }
  return picked;
}

// One product of a batch: rows of an expert's slice times that expert's columns.
struct Product {
  const SliceInfo* slice;
  const uint8_t* weights;
  Activations x;
  float* y;         // [x.n_cols, slice->n_out]
};

// All rows of all products, spread over the threads.
void run_products(Exec& exec, const std::vector<Product>& products) {
  std::vector<int64_t> first{0};
  for (const Product& product : products) first.push_back(first.back() + static_cast<int64_t>(product.slice->n_out));
  exec.pool->parallel_for(first.back(), 16, [&](int64_t begin, int64_t end, int) {
    size_t i = static_cast<size_t>(std::upper_bound(first.begin(), first.end(), begin) - first.begin()) - 1;
    for (int64_t row = begin; row < end; ++i) {
      const Product& product = products[i];
      const int64_t stop = std::min(end, first[i + 1]);
      const auto type = static_cast<size_t>(product.slice->type);
      const MatmulFn fn = exec.use_float ? exec.kernels->matmul_f32[type] : exec.kernels->matmul[type];
      const int64_t local = row - first[i];
      fn(product.weights + static_cast<size_t>(local) * product.slice->row_bytes, product.slice->row_bytes,
         static_cast<int>(stop - row), product.x, product.y + local, product.slice->n_out);
      row = stop;
    }
  });
}

void add_expert_bias(Exec& exec, const Vector& bias, uint32_t expert, int width, int n_cols, float* y) {
  if (!bias) return;
  const float* row = bias.data + static_cast<size_t>(expert) * static_cast<size_t>(width);
  for (int c = 0; c < n_cols; ++c)
    exec.kernels->add(row, width, y + static_cast<size_t>(c) * static_cast<size_t>(width));
}

// Everything that one batch of ready experts needs.
struct Batch {
  Exec& exec;
  const MoeSpec& spec;
  const ExpertLayer& geometry;
  const Columns& columns;
  const Activations& x;
  float* out;       // [all columns, d_in]
  int layer;
  MoeProbe* probe;  // or null

  void compute(const std::vector<ReadyExpert>& ready) const;
};

void Batch::compute(const std::vector<ReadyExpert>& ready) const {
  ScratchScope scope(*exec.scratch);
  const SliceInfo& gate = geometry.slices[kGate];
  const SliceInfo& up = geometry.slices[kUp];
  const SliceInfo& down = geometry.slices[kDown];
  const auto ff = static_cast<int>(up.n_out);
  struct Part {
    int first, n_cols;
    float *gate, *up;
    Activations x;
  };
  std::vector<Part> parts;
  std::vector<Product> products;
  for (const ReadyExpert& expert : ready) {
    const auto i = static_cast<size_t>(expert.idx);
    Part part{columns.first[i], columns.first[i + 1] - columns.first[i], nullptr, nullptr, {}};
    const size_t size = static_cast<size_t>(part.n_cols) * static_cast<size_t>(ff);
    part.x = gather(exec, x, columns.token.data() + part.first, part.n_cols);
    part.up = exec.scratch->alloc<float>(size);
    products.push_back({&up, expert.data + up.offset_bytes, part.x, part.up});
    if (gate.is_present) {
      part.gate = exec.scratch->alloc<float>(size);
      products.push_back({&gate, expert.data + gate.offset_bytes, part.x, part.gate});
    }
    parts.push_back(part);
  }
  run_products(exec, products);

  products.clear();
  for (size_t i = 0; i < ready.size(); ++i) {
    const Part& part = parts[i];
    const uint32_t id = columns.experts[static_cast<size_t>(ready[i].idx)];
    add_expert_bias(exec, spec.up_bias, id, ff, part.n_cols, part.up);
    if (part.gate != nullptr) add_expert_bias(exec, spec.gate_bias, id, ff, part.n_cols, part.gate);
    const int64_t size = static_cast<int64_t>(part.n_cols) * ff;
    if (part.gate != nullptr) {
      glu(exec, spec.act, part.gate, part.up, size, part.up);
    } else {
      glu(exec, spec.act, part.up, nullptr, size, part.up);
    }
    products.push_back({&down, ready[i].data + down.offset_bytes, quantize(exec, part.up, part.n_cols, ff),
                        out + static_cast<size_t>(part.first) * static_cast<size_t>(spec.d_in)});
  }
  run_products(exec, products);
  for (size_t i = 0; i < ready.size(); ++i) {
    const uint32_t id = columns.experts[static_cast<size_t>(ready[i].idx)];
    add_expert_bias(exec, spec.down_bias, id, spec.d_in, parts[i].n_cols, products[i].y);
    if (probe != nullptr) {
      probe->expert(layer, id, parts[i].first, parts[i].n_cols, parts[i].x.f32, parts[i].x.ld, parts[i].up,
                    products[i].y);
    }
  }
}

void sum_in_router_order(Exec& exec, const MoeSpec& spec, const Routing& routing, const Columns& columns,
                         const float* out, int n, float* y) {
  const int used = spec.router.n_used;
  const auto d = static_cast<size_t>(spec.d_in);
  exec.pool->parallel_for(n, 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      float* row = y + static_cast<size_t>(t) * d;
      std::fill_n(row, d, 0.0f);
      for (int r = 0; r < used; ++r) {
        const auto pair = static_cast<size_t>(t * used + r);
        float weight = routing.weights[pair];
        if (spec.down_scale) weight *= spec.down_scale.data[routing.chosen[pair]];
        exec.kernels->add_scaled(out + static_cast<size_t>(columns.column[pair]) * d, weight, spec.d_in, row);
      }
    }
  });
}

}  // namespace

Status MoeRunner::experts(Step& step, int layer, const MoeSpec& spec, const Routing& routing, const float* x,
                          const float* residual, float* y, const std::function<void()>& while_reading) {
  Exec& exec = *step.exec;
  ScratchScope scope(*exec.scratch);
  const Columns columns = group_by_expert(spec.router, routing.chosen, step.n);
  LES_RETURN_IF_ERROR(scheduler_.begin_layer(static_cast<uint32_t>(layer), columns.experts));
  if (while_reading) while_reading();
  if (residual != nullptr) look_ahead(step, layer, residual);
  const Activations act = quantize(exec, x, step.n, spec.d_in);
  auto* out = exec.scratch->alloc<float>(columns.token.size() * static_cast<size_t>(spec.d_in));
  const Batch batch{exec, spec, store_.layer(static_cast<uint32_t>(layer)), columns, act, out, layer, probe_};
  if (probe_ != nullptr) probe_->begin(layer, spec, routing, columns.column, x, step.n);
  std::vector<ReadyExpert> ready;
  for (;;) {
    LES_RETURN_IF_ERROR(scheduler_.next(&ready));
    if (ready.empty()) break;
    batch.compute(ready);
    for (const ReadyExpert& expert : ready) scheduler_.done(expert);
  }
  sum_in_router_order(exec, spec, routing, columns, out, step.n, y);
  if (probe_ != nullptr) probe_->end(layer, step.n, y);
  return Status::ok();
}

Status MoeRunner::run(Step& step, int layer, const MoeSpec& spec, const float* x, const float* residual, float* y,
                      const std::function<void()>& while_reading) {
  ScratchScope scope(*step.exec->scratch);
  return experts(step, layer, spec, route(step, layer, spec, x), x, residual, y, while_reading);
}

void MoeRunner::announce(Step& step, int layer, const Routing& routing) {
  if (!scheduler_.wants_guesses(step.n)) return;
  const MoeSpec& spec = *specs_[static_cast<size_t>(layer)];
  std::vector<Guess> certain;
  for (int i = 0; i < step.n * spec.router.n_used; ++i)
    certain.push_back({static_cast<uint32_t>(routing.chosen[i]), 0});
  scheduler_.guess(static_cast<uint32_t>(layer), certain);
}

// The next layer's router on this layer's state: what streaming.md calls cross-layer prediction. Costs one small
// product; never changes what is computed.
void MoeRunner::look_ahead(Step& step, int layer, const float* residual) {
  if (!scheduler_.wants_guesses(step.n)) return;
  size_t next = static_cast<size_t>(layer) + 1;
  while (next < specs_.size() && specs_[next] == nullptr) ++next;
  if (next >= specs_.size()) return;
  const MoeSpec& spec = *specs_[next];
  Exec& exec = *step.exec;
  ScratchScope scope(*exec.scratch);
  const auto n = static_cast<size_t>(step.n);
  const auto n_expert = static_cast<size_t>(spec.router.n_expert);
  const auto used = static_cast<size_t>(spec.router.n_used);
  const int d = spec.gate_inp.n_in;
  auto* normed = exec.scratch->alloc<float>(n * static_cast<size_t>(d));
  auto* logits = exec.scratch->alloc<float>(n * n_expert);
  const float* h = residual;
  if (spec.router_norm != nullptr) {
    rms_norm(exec, residual, *spec.router_norm, step.n, d, spec.router_eps, normed);
    h = normed;
  }
  matmul(exec, spec.gate_inp, spec.gate_inp_bias, quantize(exec, h, step.n, d), logits);
  std::vector<int> chosen(n * used);
  std::vector<float> weights(used);
  for (size_t t = 0; t < n; ++t) {
    choose_experts(spec.router, logits + t * n_expert, spec.selection_bias.data, chosen.data() + t * used,
                   weights.data());
  }
  std::vector<Guess> guesses;  // the first choices of all tokens, then the second ones, ...
  for (size_t r = 0; r < used; ++r) {
    for (size_t t = 0; t < n; ++t)
      guesses.push_back({static_cast<uint32_t>(chosen[t * used + r]), static_cast<uint32_t>(r)});
  }
  scheduler_.guess(static_cast<uint32_t>(next), guesses);
}

}  // namespace les

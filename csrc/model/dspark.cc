#include "model/dspark.h"

#include <algorithm>

#include "quant/codec.h"

namespace les {

namespace {

Status wrong(const WeightBinder& binder, const char* what, long long value, const char* expected) {
  return make_error(Code::kCorrupt, "%s: %s is %lld; expected %s", binder.file().path().c_str(), what, value, expected);
}

Status read_shape(const WeightBinder& binder, const KeyReader& keys, const ModelConfig& target, DraftModel* m,
                  int* n_layers, int* ff) {
  LES_ASSIGN_OR_RETURN(m->d_model, keys.integer("embedding_length"));
  LES_ASSIGN_OR_RETURN(*n_layers, keys.integer("block_count"));
  LES_ASSIGN_OR_RETURN(*ff, keys.integer("feed_forward_length"));
  LES_ASSIGN_OR_RETURN(m->block_size, keys.integer("block_size"));
  LES_ASSIGN_OR_RETURN(m->eps, keys.number_or("attention.layer_norm_rms_epsilon", 1e-6f));
  LES_ASSIGN_OR_RETURN(const std::vector<int64_t> tapped, binder.file().get_integers(keys.key("target_layers")));
  for (const int64_t layer : tapped) {
    if (layer < 0 || layer > target.n_layers) return wrong(binder, "a target layer", layer, "a layer of the target");
    m->target_layers.push_back(static_cast<int>(layer));
  }
  if (tapped.empty() || tapped.size() > 64)
    return wrong(binder, "the number of target layers", static_cast<long long>(tapped.size()), "1 to 64");
  if (m->d_model < 1 || m->d_model > (1 << 20)) return wrong(binder, "embedding_length", m->d_model, "1 to 1048576");
  if (*n_layers < 1 || *n_layers > 256) return wrong(binder, "block_count", *n_layers, "1 to 256");
  if (*ff < 1 || *ff > (1 << 22)) return wrong(binder, "feed_forward_length", *ff, "1 to 4194304");
  LES_ASSIGN_OR_RETURN(m->from_anchor, keys.boolean_or("sample_from_anchor", binder.has("markov_w1.weight")));
  if (m->block_size < (m->from_anchor ? 1 : 2) || m->block_size > 256)
    return wrong(binder, "block_size", m->block_size, "2 to 256");
  LES_ASSIGN_OR_RETURN(const uint64_t mask, binder.file().get_u64("tokenizer.ggml.mask_token_id"));
  if (mask >= static_cast<uint64_t>(target.n_vocab))
    return wrong(binder, "the mask token", static_cast<long long>(mask), "a token of the target");
  m->mask_token = static_cast<int>(mask);
  m->n_vocab = target.n_vocab;
  m->d_target = target.d_model;
  return Status::ok();
}

Status bind_heads(WeightBinder& binder, DraftModel* m) {
  const GgufFile& file = binder.file();
  int n_rows = m->n_vocab;
  if (const TensorInfo* d2t = file.find_tensor("d2t"); d2t != nullptr) {
    if (d2t->n_elements < 1 || d2t->n_elements > static_cast<uint64_t>(m->n_vocab)) {
      return wrong(binder, "the number of values of d2t", static_cast<long long>(d2t->n_elements),
                   "1 to the target's vocabulary");
    }
    n_rows = static_cast<int>(d2t->n_elements);
  }
  m->d2t.resize(n_rows == m->n_vocab && file.find_tensor("d2t") == nullptr ? 0 : static_cast<size_t>(n_rows));
  m->has_embedding = binder.has("token_embd.weight");
  const bool has_head = binder.has("output.weight");
  if (!has_head && n_rows != m->n_vocab)
    return wrong(binder, "a reduced vocabulary without its own output.weight", n_rows, "both");
  if (!(m->has_embedding && has_head) && m->d_model != m->d_target) {
    return wrong(binder, "embedding_length", m->d_model, "the target's, whose embedding or head is shared");
  }
  if (has_head) LES_RETURN_IF_ERROR(binder.matrix("output.weight", m->d_model, n_rows, &m->output));
  const int n_taps = static_cast<int>(m->target_layers.size());
  LES_RETURN_IF_ERROR(binder.matrix("fc.weight", n_taps * m->d_target, m->d_model, &m->fc));
  LES_RETURN_IF_ERROR(binder.vector("enc.output_norm.weight", m->d_model, &m->context_norm));
  LES_RETURN_IF_ERROR(binder.vector("output_norm.weight", m->d_model, &m->output_norm));
  const TensorInfo* w1 = file.find_tensor("markov_w1.weight");
  if (w1 == nullptr) return Status::ok();
  if (w1->shape.empty() || w1->shape[0] < 1 || w1->shape[0] > (1 << 16))
    return wrong(binder, "the Markov rank", 0, "1 to 65536");
  m->rank = static_cast<int>(w1->shape[0]);
  LES_RETURN_IF_ERROR(binder.matrix("markov_w1.weight", m->rank, m->n_vocab, &m->markov_w1));
  LES_RETURN_IF_ERROR(binder.matrix("markov_w2.weight", m->rank, n_rows, &m->markov_w2));
  LES_RETURN_IF_ERROR(binder.optional_vector("conf_proj.weight", m->d_model + m->rank, &m->confidence));
  return binder.optional_vector("conf_proj.bias", 1, &m->confidence_bias);
}

}  // namespace

StateSpec DraftModel::state_spec() const {
  StateSpec spec;
  for (const DraftLayer& layer : layers)
    spec.push_back({layer.spec.n_kv_heads, layer.spec.dim_k, layer.spec.dim_v, 0, 0});
  return spec;
}

size_t DraftModel::scratch_floats(int n_tokens, int n_threads, int context) const {
  const AttentionSpec& spec = layers.front().spec;
  const auto d = static_cast<size_t>(d_model), n = static_cast<size_t>(n_tokens),
             slots = static_cast<size_t>(block_size);
  const size_t taps = target_layers.size() * static_cast<size_t>(d_target);
  const auto heads = static_cast<size_t>(spec.n_heads), kv = static_cast<size_t>(spec.n_kv_heads);
  const auto dims = static_cast<size_t>(2 * spec.dim_k + 2 * spec.dim_v);
  const size_t observing = n * (3 * taps + 4 * d + kv * dims);
  const size_t drafting = slots * (8 * d + (heads + kv) * dims + 4 * static_cast<size_t>(layers.front().ffn.up.n_out) +
                                   2 * static_cast<size_t>(n_rows())) +
                          static_cast<size_t>(n_threads) * heads * static_cast<size_t>(context + block_size);
  return std::max(observing, drafting);
}

Status bind_draft_model(WeightBinder& binder, const ModelConfig& target, DraftModel* m) {
  const KeyReader keys(binder.file(), "dflash");
  int n_layers = 0, ff = 0;
  LES_RETURN_IF_ERROR(read_shape(binder, keys, target, m, &n_layers, &ff));
  LES_ASSIGN_OR_RETURN(const int n_heads, keys.integer("attention.head_count"));
  LES_ASSIGN_OR_RETURN(const int n_kv_heads, keys.integer_or("attention.head_count_kv", n_heads));
  if (n_kv_heads < 1 || n_heads < 1 || n_heads > 4096 || n_heads % n_kv_heads != 0)
    return wrong(binder, "attention.head_count", n_heads, "a multiple of head_count_kv");
  LES_ASSIGN_OR_RETURN(const int dim_k, keys.integer_or("attention.key_length", m->d_model / n_heads));
  LES_ASSIGN_OR_RETURN(const int dim_v, keys.integer_or("attention.value_length", dim_k));
  LES_ASSIGN_OR_RETURN(const int n_rot, keys.integer_or("rope.dimension_count", dim_k));
  if (dim_k < 1 || dim_k > 4096 || dim_k % kActBlock != 0)
    return wrong(binder, "attention.key_length", dim_k, "a multiple of 32");
  if (dim_v < 1 || dim_v > 4096 || dim_v % kActBlock != 0)
    return wrong(binder, "attention.value_length", dim_v, "a multiple of 32");
  if (n_rot < 2 || n_rot > dim_k || n_rot % 2 != 0)
    return wrong(binder, "rope.dimension_count", n_rot, "an even part of key_length");
  LES_ASSIGN_OR_RETURN(const std::string scaling, keys.text_or("rope.scaling.type", "none"));
  if (scaling != "none") {
    return make_error(Code::kUnsupported, "%s: rotary scaling '%s' in a draft model", binder.file().path().c_str(),
                      scaling.c_str());
  }
  LES_ASSIGN_OR_RETURN(const float base, keys.number_or("rope.freq_base", 10000));
  m->rope = make_rope(RopePairing::kHalves, n_rot, base, {}, nullptr);
  LES_ASSIGN_OR_RETURN(const int window, keys.integer_or("attention.sliding_window", 0));
  LES_ASSIGN_OR_RETURN(const std::vector<int> is_windowed,
                       keys.per_layer("attention.sliding_window_pattern", n_layers, 1));

  m->layers.resize(static_cast<size_t>(n_layers));
  for (int l = 0; l < n_layers; ++l) {
    DraftLayer& layer = m->layers[static_cast<size_t>(l)];
    AttentionSpec& spec = layer.spec;
    spec.n_heads = n_heads;
    spec.n_kv_heads = n_kv_heads;
    spec.dim_k = dim_k;
    spec.dim_v = dim_v;
    spec.eps = m->eps;
    spec.qk_norm = QkNorm::kPerHead;
    spec.is_causal = false;
    spec.window = is_windowed[static_cast<size_t>(l)] != 0 ? window : 0;
    spec.rope = &m->rope;
    LES_RETURN_IF_ERROR(binder.vector(block_name(l, "attn_norm.weight"), m->d_model, &layer.attn_norm));
    LES_RETURN_IF_ERROR(binder.vector(block_name(l, "ffn_norm.weight"), m->d_model, &layer.ffn_norm));
    LES_RETURN_IF_ERROR(bind_attention(binder, l, m->d_model, spec, &layer.attn));
    if (layer.attn.qkv) return wrong(binder, "attn_qkv of layer", l, "separate query, key and value");
    LES_RETURN_IF_ERROR(bind_ffn(binder, l, "", m->d_model, ff, true, &layer.ffn));
  }
  return bind_heads(binder, m);
}

void observe_taps(const DraftModel& m, Exec& exec, State& state, const float* taps, int n, int position) {
  ScratchScope scope(*exec.scratch);
  const auto rows = static_cast<size_t>(n);
  auto* context = exec.scratch->alloc<float>(rows * static_cast<size_t>(m.d_model));  // [n, d_model]
  matmul(exec, m.fc, quantize(exec, taps, n, m.fc.n_in), context);
  rms_norm(exec, context, m.context_norm, n, m.d_model, m.eps, context);
  const Activations act = quantize(exec, context, n, m.d_model);
  Step step;
  step.exec = &exec;
  step.state = &state;
  step.n = n;
  step.position = position;
  for (size_t l = 0; l < m.layers.size(); ++l) {
    const DraftLayer& layer = m.layers[l];
    const AttentionSpec& spec = layer.spec;
    ScratchScope inner(*exec.scratch);
    auto* k = exec.scratch->alloc<float>(rows * static_cast<size_t>(spec.n_kv_heads * spec.dim_k));
    auto* v = exec.scratch->alloc<float>(rows * static_cast<size_t>(spec.n_kv_heads * spec.dim_v));
    matmul(exec, layer.attn.k, layer.attn.k_bias, act, k);
    matmul(exec, layer.attn.v, layer.attn.v_bias, act, v);
    rms_norm(exec, k, layer.attn.k_norm, n * spec.n_kv_heads, spec.dim_k, spec.eps, k);
    rope_heads(step, m.rope, spec.n_kv_heads, spec.dim_k, 0, k);
    store_keys_and_values(step, static_cast<int>(l), spec, k, v);
  }
}

namespace {

// h [n, d_model]: the block's hidden states after the final norm.
Status run_block(const DraftModel& m, Exec& exec, State& state, const DraftRequest& request, int n, float* h) {
  ScratchScope scope(*exec.scratch);
  const int64_t size = static_cast<int64_t>(n) * m.d_model;
  auto* x = exec.scratch->alloc<float>(static_cast<size_t>(size));
  auto* out = exec.scratch->alloc<float>(static_cast<size_t>(size));
  std::vector<int32_t> tokens(static_cast<size_t>(n), m.mask_token);
  tokens[0] = request.anchor;
  LES_RETURN_IF_ERROR((*request.embed)(tokens, x));
  Step step;
  step.exec = &exec;
  step.state = &state;
  step.n = n;
  step.position = request.position;
  for (size_t l = 0; l < m.layers.size(); ++l) {
    const DraftLayer& layer = m.layers[l];
    rms_norm(exec, x, layer.attn_norm, n, m.d_model, m.eps, h);
    attention(step, static_cast<int>(l), layer.spec, layer.attn, h, out);
    add_scaled(exec, out, 1, size, x);
    rms_norm(exec, x, layer.ffn_norm, n, m.d_model, m.eps, h);
    ffn(exec, layer.ffn, Act::kSilu, h, n, out);
    add_scaled(exec, out, 1, size, x);
  }
  rms_norm(exec, x, m.output_norm, n, m.d_model, m.eps, h);
  return Status::ok();
}

}  // namespace

Status draft_block(const DraftModel& m, Exec& exec, State& state, const DraftRequest& request, DraftResult* result) {
  const int first = m.from_anchor ? 0 : 1;  // the slot that drafts the first token
  const int n = request.n_tokens + first;
  const auto n_rows = static_cast<size_t>(m.n_rows()), d = static_cast<size_t>(m.d_model),
             slots = static_cast<size_t>(n);
  ScratchScope scope(*exec.scratch);
  auto* h = exec.scratch->alloc<float>(slots * d);
  auto* logits = exec.scratch->alloc<float>(slots * n_rows);
  auto* bias = exec.scratch->alloc<float>(n_rows);
  LES_RETURN_IF_ERROR(run_block(m, exec, state, request, n, h));
  matmul(exec, m.output ? m.output : *request.head, quantize(exec, h, n, m.d_model), logits);
  if (request.wants_trace) {
    result->hidden.assign(h, h + slots * d);
    result->base_logits.assign(logits, logits + slots * n_rows);
  }
  std::vector<float> previous_row(static_cast<size_t>(m.rank));
  int previous = request.anchor;
  for (int slot = first; slot < n; ++slot) {
    float* row = logits + static_cast<size_t>(slot) * n_rows;
    if (m.rank > 0) {
      ScratchScope inner(*exec.scratch);
      const auto offset = static_cast<size_t>(previous) * m.markov_w1.row_bytes;
      dequantizer(m.markov_w1.type)(m.markov_w1.data + offset, m.rank, previous_row.data());
      matmul(exec, m.markov_w2, quantize(exec, previous_row.data(), 1, m.rank), bias);
      exec.kernels->add(bias, static_cast<int>(n_rows), row);
    }
    if (m.confidence) {
      float sum = m.confidence_bias ? m.confidence_bias.data[0] : 0.0f;
      sum += exec.kernels->dot(m.confidence.data, h + static_cast<size_t>(slot) * d, m.d_model);
      sum += exec.kernels->dot(m.confidence.data + d, previous_row.data(), m.rank);
      result->confidences.push_back(sigmoid(sum));
    }
    const auto best = static_cast<size_t>(std::max_element(row, row + n_rows) - row);
    previous = m.d2t.empty() ? static_cast<int>(best) : m.d2t[best];
    result->tokens.push_back(previous);
  }
  if (request.wants_trace) result->logits.assign(logits, logits + slots * n_rows);
  return Status::ok();
}

}  // namespace les

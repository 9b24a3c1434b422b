#include "model/config.h"

#include <climits>
#include <cmath>

namespace les {

namespace {

// Larger than any real model; keeps products of two sizes within 64 bits.
constexpr int64_t kMaxSize = 1 << 28;

Result<int> to_int(const GgufFile& file, const std::string& key, int64_t value) {
  if (value < 0 || value > kMaxSize) {
    return make_error(Code::kCorrupt, "%s: %s is %lld; expected 0 to %lld", file.path().c_str(), key.c_str(),
                      static_cast<long long>(value), static_cast<long long>(kMaxSize));
  }
  return static_cast<int>(value);
}

}  // namespace

bool KeyReader::has(const char* name) const { return file_.find(key(name)) != nullptr; }

Result<int> KeyReader::integer(const char* name) const {
  LES_ASSIGN_OR_RETURN(const uint64_t value, file_.get_u64(key(name)));
  return to_int(file_, key(name), value > INT64_MAX ? -1 : static_cast<int64_t>(value));
}

Result<int> KeyReader::integer_or(const char* name, int fallback) const {
  return has(name) ? integer(name) : Result<int>(fallback);
}

Result<float> KeyReader::number_or(const char* name, float fallback) const {
  if (!has(name)) return fallback;
  LES_ASSIGN_OR_RETURN(const double value, file_.get_f64(key(name)));
  if (!std::isfinite(value)) {
    return make_error(Code::kCorrupt, "%s: %s is not a finite number", file_.path().c_str(), key(name).c_str());
  }
  return static_cast<float>(value);
}

Result<bool> KeyReader::boolean_or(const char* name, bool fallback) const {
  return has(name) ? file_.get_bool(key(name)) : Result<bool>(fallback);
}

Result<std::string> KeyReader::text_or(const char* name, const char* fallback) const {
  return has(name) ? file_.get_string(key(name)) : Result<std::string>(std::string(fallback));
}

Result<std::vector<int>> KeyReader::per_layer(const char* name, int n_layers, int fallback) const {
  const auto n = static_cast<size_t>(n_layers);
  if (!has(name)) return std::vector<int>(n, fallback);
  LES_ASSIGN_OR_RETURN(const std::vector<int64_t> values, file_.get_integers(key(name)));
  if (values.size() != 1 && values.size() < n) {
    return make_error(Code::kCorrupt, "%s: %s has %zu entries; expected 1 or %d", file_.path().c_str(),
                      key(name).c_str(), values.size(), n_layers);
  }
  std::vector<int> result;
  for (size_t i = 0; i < n; ++i) {
    LES_ASSIGN_OR_RETURN(const int value, to_int(file_, key(name), values[values.size() == 1 ? 0 : i]));
    result.push_back(value);
  }
  return result;
}

namespace {

Status read_rope(const KeyReader& keys, ModelConfig* config) {
  LES_ASSIGN_OR_RETURN(config->n_rot, keys.integer_or("rope.dimension_count", config->dim_k));
  LES_ASSIGN_OR_RETURN(config->rope_base, keys.number_or("rope.freq_base", 10000));
  RopeScaling& scaling = config->rope_scaling;
  // Old converters wrote the linear factor under another name.
  LES_ASSIGN_OR_RETURN(const float linear, keys.number_or("rope.scale_linear", 1));
  LES_ASSIGN_OR_RETURN(scaling.type, keys.text_or("rope.scaling.type", linear != 1 ? "linear" : "none"));
  LES_ASSIGN_OR_RETURN(scaling.factor, keys.number_or("rope.scaling.factor", linear));
  LES_ASSIGN_OR_RETURN(scaling.original_context,
                       keys.integer_or("rope.scaling.original_context_length", config->context_train));
  LES_ASSIGN_OR_RETURN(scaling.attn_factor, keys.number_or("rope.scaling.attn_factor", 1));
  LES_ASSIGN_OR_RETURN(scaling.beta_fast, keys.number_or("rope.scaling.yarn_beta_fast", 32));
  LES_ASSIGN_OR_RETURN(scaling.beta_slow, keys.number_or("rope.scaling.yarn_beta_slow", 1));
  LES_ASSIGN_OR_RETURN(scaling.log_multiplier, keys.number_or("rope.scaling.yarn_log_multiplier", 0));
  if (scaling.factor <= 0) scaling.factor = 1;
  if (scaling.type != "none" && scaling.type != "linear" && scaling.type != "yarn" && scaling.type != "longrope") {
    return make_error(Code::kUnsupported, "%s: rope scaling '%s' is unknown; known: none, linear, yarn, longrope",
                      keys.file().path().c_str(), scaling.type.c_str());
  }
  if (config->n_rot % 2 != 0) {
    return make_error(Code::kCorrupt, "%s: rope.dimension_count is %d; expected an even number",
                      keys.file().path().c_str(), config->n_rot);
  }
  return Status::ok();
}

Status read_experts(const KeyReader& keys, ModelConfig* config) {
  LES_ASSIGN_OR_RETURN(config->n_expert, keys.integer_or("expert_count", 0));
  LES_ASSIGN_OR_RETURN(config->n_expert_used, keys.integer_or("expert_used_count", 0));
  // Files of one kind of network only say its width once.
  LES_ASSIGN_OR_RETURN(config->expert_ff, keys.integer_or("expert_feed_forward_length", config->ff[0]));
  LES_ASSIGN_OR_RETURN(config->shared_ff, keys.integer_or("expert_shared_feed_forward_length", 0));
  LES_ASSIGN_OR_RETURN(config->n_shared, keys.integer_or("expert_shared_count", 0));
  LES_ASSIGN_OR_RETURN(config->n_leading_dense, keys.integer_or("leading_dense_block_count", 0));
  LES_ASSIGN_OR_RETURN(const int gating, keys.integer_or("expert_gating_func", 0));
  if (gating > static_cast<int>(Gating::kSoftmaxOfChosen)) {
    return make_error(Code::kUnsupported, "%s: expert_gating_func %d is unknown; known: 0 to 3",
                      keys.file().path().c_str(), gating);
  }
  config->gating = static_cast<Gating>(gating);
  config->has_weights_norm = keys.has("expert_weights_norm");
  LES_ASSIGN_OR_RETURN(config->weights_norm, keys.boolean_or("expert_weights_norm", false));
  LES_ASSIGN_OR_RETURN(config->weights_scale, keys.number_or("expert_weights_scale", 1));
  if (config->weights_scale == 0) config->weights_scale = 1;  // some converters write 0 for "none"
  LES_ASSIGN_OR_RETURN(config->n_group, keys.integer_or("expert_group_count", 1));
  LES_ASSIGN_OR_RETURN(config->n_group_used, keys.integer_or("expert_group_used_count", 1));
  if (config->n_group < 1) config->n_group = config->n_group_used = 1;
  if (config->n_expert > 0 && (config->n_expert_used < 1 || config->n_expert_used > config->n_expert)) {
    return make_error(Code::kCorrupt, "%s: expert_used_count is %d; expected 1 to expert_count %d",
                      keys.file().path().c_str(), config->n_expert_used, config->n_expert);
  }
  if (config->n_expert % config->n_group != 0 || config->n_group_used < 1 || config->n_group_used > config->n_group) {
    return make_error(Code::kCorrupt, "%s: %d experts in %d groups, %d used: not a division",
                      keys.file().path().c_str(), config->n_expert, config->n_group, config->n_group_used);
  }
  return Status::ok();
}

}  // namespace

Result<ModelConfig> read_config(const GgufFile& file) {
  ModelConfig config;
  LES_ASSIGN_OR_RETURN(config.arch, file.get_string("general.architecture"));
  const KeyReader keys(file, config.arch);
  LES_ASSIGN_OR_RETURN(const int n_blocks, keys.integer("block_count"));
  LES_ASSIGN_OR_RETURN(config.n_mtp_layers, keys.integer_or("nextn_predict_layers", 0));
  if (n_blocks < 1 || n_blocks > 4096 || config.n_mtp_layers >= n_blocks) {
    return make_error(Code::kCorrupt, "%s: block_count is %d with %d prediction blocks; expected 1 to 4096 layers",
                      file.path().c_str(), n_blocks, config.n_mtp_layers);
  }
  config.n_layers = n_blocks - config.n_mtp_layers;
  LES_ASSIGN_OR_RETURN(config.d_model, keys.integer("embedding_length"));
  LES_ASSIGN_OR_RETURN(config.context_train, keys.integer_or("context_length", 4096));
  LES_ASSIGN_OR_RETURN(config.norm_eps, keys.number_or("attention.layer_norm_rms_epsilon", 1e-5f));
  LES_ASSIGN_OR_RETURN(config.n_heads, keys.per_layer("attention.head_count", n_blocks, 0));
  LES_ASSIGN_OR_RETURN(config.n_kv_heads, keys.per_layer("attention.head_count_kv", n_blocks, -1));
  int max_heads = 0;
  for (int i = 0; i < n_blocks; ++i) {
    const auto l = static_cast<size_t>(i);
    if (config.n_kv_heads[l] < 0) config.n_kv_heads[l] = config.n_heads[l];
    if (config.n_kv_heads[l] > 0 && config.n_heads[l] % config.n_kv_heads[l] != 0) {
      return make_error(Code::kCorrupt, "%s: layer %d has %d heads and %d key/value heads: not a multiple",
                        file.path().c_str(), i, config.n_heads[l], config.n_kv_heads[l]);
    }
    max_heads = std::max(max_heads, config.n_heads[l]);
  }
  if (config.d_model < 1) {
    return make_error(Code::kCorrupt, "%s: embedding_length is %d", file.path().c_str(), config.d_model);
  }
  const int dim_default = max_heads > 0 ? config.d_model / max_heads : 0;
  LES_ASSIGN_OR_RETURN(config.dim_k, keys.integer_or("attention.key_length", dim_default));
  LES_ASSIGN_OR_RETURN(config.dim_v, keys.integer_or("attention.value_length", dim_default));
  LES_ASSIGN_OR_RETURN(config.sliding_window, keys.integer_or("attention.sliding_window", 0));
  LES_ASSIGN_OR_RETURN(config.ff, keys.per_layer("feed_forward_length", n_blocks, 0));
  LES_RETURN_IF_ERROR(read_rope(keys, &config));
  LES_RETURN_IF_ERROR(read_experts(keys, &config));
  const TensorInfo* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr) {
    return make_error(Code::kCorrupt, "%s: tensor token_embd.weight is missing", file.path().c_str());
  }
  if (embedding->shape.size() != 2 || embedding->shape[0] != static_cast<uint64_t>(config.d_model) ||
      embedding->shape[1] > static_cast<uint64_t>(kMaxSize)) {
    return make_error(Code::kCorrupt, "%s: token_embd.weight has %zu dimensions and rows of %llu; expected 2 and %d",
                      file.path().c_str(), embedding->shape.size(),
                      static_cast<unsigned long long>(embedding->shape[0]), config.d_model);
  }
  config.n_vocab = static_cast<int>(embedding->shape[1]);
  return config;
}

}  // namespace les

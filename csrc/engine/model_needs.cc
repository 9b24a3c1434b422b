#include "engine/model_needs.h"

#include <algorithm>

#include "base/bytes.h"
#include "io/make_reader.h"

namespace les {

namespace {

constexpr int kDefaultContext = 4096;
// VmRSS after importing les and les.cli.main, Python 3.11 on x86-64 Linux: 42 MiB; the rest is for line editing and for
// what the allocator keeps.
constexpr uint64_t kProcessBytes = 72 * kMiB;

Status check_experts(const ModelGraph& graph, const ExpertStore& store, const std::string& path) {
  const ModelConfig& config = graph.config();
  for (int l = 0; l < config.n_layers; ++l) {
    const MoeSpec* spec = graph.moe_spec(l);
    if (spec == nullptr) continue;
    const auto layer = static_cast<uint32_t>(l);
    if (layer >= store.n_layers() || !store.layer(layer).has_experts) {
      return make_error(Code::kCorrupt, "%s: layer %d has no expert tensors", path.c_str(), l);
    }
    const ExpertLayer& experts = store.layer(layer);
    const SliceInfo& up = experts.slices[kUp];
    const SliceInfo& down = experts.slices[kDown];
    const auto d = static_cast<uint64_t>(spec->d_in);
    if (experts.n_expert != static_cast<uint32_t>(config.n_expert)) {
      return make_error(Code::kCorrupt, "%s: layer %d has %u experts; expected %d", path.c_str(), l, experts.n_expert,
                        config.n_expert);
    }
    if (!up.is_present || !down.is_present || up.n_in != d || down.n_out != d || down.n_in != up.n_out) {
      return make_error(Code::kCorrupt, "%s: layer %d: experts are %llu -> %llu -> %llu; expected %d in and out",
                        path.c_str(), l, static_cast<unsigned long long>(up.n_in),
                        static_cast<unsigned long long>(up.n_out), static_cast<unsigned long long>(down.n_out),
                        spec->d_in);
    }
    for (const SliceInfo& slice : experts.slices) {
      if (slice.is_present && !qtype_info(slice.type).is_weight) {
        return make_error(Code::kUnsupported, "%s: layer %d: experts of type %s, which is no weight type", path.c_str(),
                          l, qtype_info(slice.type).name);
      }
    }
  }
  return Status::ok();
}

// The kernels read Q8_0 rows as whole blocks.
Status check_kv_type(const StateSpec& spec, KvType type, const std::string& path) {
  if (type != KvType::kQ8_0) return Status::ok();
  for (size_t l = 0; l < spec.size(); ++l) {
    if (spec[l].n_kv_heads == 0 || (spec[l].dim_k % kActBlock == 0 && spec[l].dim_v % kActBlock == 0)) continue;
    return make_error(Code::kUnsupported,
                      "%s: layer %zu caches keys of %d and values of %d; q8_0 needs multiples of %d", path.c_str(), l,
                      spec[l].dim_k, spec[l].dim_v, static_cast<int>(kActBlock));
  }
  return Status::ok();
}

uint64_t vocabulary_bytes(const GgufFile& file) {
  // Peak while a tokenizer is made from its file, by VmHWM: 251 bytes a token (152k of qwen2), 367 (262k of gemma4).
  const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  if (tokens == nullptr) return 0;
  const auto* array = std::get_if<std::shared_ptr<GgufArray>>(&tokens->data);
  return array == nullptr ? 0 : (*array)->size() * 400;
}

void add_expert_needs(const ModelParts& parts, MemoryNeeds* needs) {
  const ModelConfig& config = parts.graph->config();
  needs->n_used = static_cast<uint32_t>(config.n_expert_used);
  for (const ExpertLayer& layer : parts.expert_layers) {
    if (!layer.has_experts) continue;
    needs->n_experts_total += layer.n_expert;
    needs->experts_per_token += needs->n_used;
  }
  if (needs->n_experts_total == 0) needs->n_used = 0;
  needs->classes = plan_size_classes(parts.expert_layers);
  for (const SizeClass& c : needs->classes) needs->expert_bytes += c.slot_bytes * c.n_experts;
}

}  // namespace

Result<ModelParts> examine_model(const std::string& path, const EngineOptions& options) {
  ModelParts parts;
  LES_ASSIGN_OR_RETURN(parts.gguf, open_gguf(path));
  LES_ASSIGN_OR_RETURN(parts.store, open_expert_store(parts.gguf));
  LES_ASSIGN_OR_RETURN(ModelConfig config, read_config(*parts.gguf));
  config.context = options.context > 0 ? options.context : std::min(kDefaultContext, config.context_train);
  parts.context = config.context;
  auto graph = make_graph(config);
  if (!graph.is_ok()) return Status(graph.status().code(), parts.gguf->path() + ": " + graph.status().message());
  parts.graph = std::move(*graph);
  parts.binder = std::make_unique<WeightBinder>(*parts.gguf);
  LES_RETURN_IF_ERROR(parts.graph->bind(*parts.binder));
  LES_RETURN_IF_ERROR(check_experts(*parts.graph, *parts.store, parts.gguf->path()));

  const ModelConfig& bound = parts.graph->config();
  parts.expert_layers.resize(parts.store->n_layers());
  for (int l = 0; l < bound.n_layers; ++l) {
    parts.state_spec.push_back(parts.graph->layer_state(l));
    if (parts.graph->moe_spec(l) != nullptr) {
      parts.expert_layers[static_cast<size_t>(l)] = parts.store->layer(static_cast<uint32_t>(l));
    }
  }
  LES_RETURN_IF_ERROR(check_kv_type(parts.state_spec, options.kv_type, parts.gguf->path()));
  MemoryNeeds& needs = parts.needs;
  needs.process_bytes = kProcessBytes;
  needs.trunk_bytes = parts.binder->trunk_bytes() + parts.binder->derived_bytes();
  needs.tokenizer_bytes = vocabulary_bytes(*parts.gguf);
  needs.kv_bytes = kv_cache_bytes(parts.state_spec, options.kv_type, parts.context);
  uint64_t recurrent_floats = 0;
  for (const LayerStateSpec& layer : parts.state_spec) recurrent_floats += static_cast<uint64_t>(layer.n_recurrent);
  needs.state_bytes = recurrent_bytes(parts.state_spec) + kCheckpoints * recurrent_floats * sizeof(float);
  ReaderOptions reader;
  reader.kind = options.reader;
  reader.lanes = options.lanes;
  needs.reader_bytes = plan_reader_bytes(reader);
  const auto n_threads = static_cast<uint64_t>(options.threads > 0 ? options.threads : default_threads());
  const int max_heads = *std::max_element(bound.n_heads.begin(), bound.n_heads.end());
  needs.scratch_fixed_bytes =
      n_threads * static_cast<uint64_t>(max_heads) * static_cast<uint64_t>(parts.context) * sizeof(float) +
      2 * static_cast<uint64_t>(bound.n_vocab) * sizeof(float) + kMiB;
  needs.scratch_per_token_bytes = parts.graph->scratch_floats_per_token() * sizeof(float);
  add_expert_needs(parts, &needs);
  return parts;
}

}  // namespace les

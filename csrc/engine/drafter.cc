#include "engine/drafter.h"

#include "engine/engine.h"
#include "quant/codec.h"

namespace les {

Result<std::shared_ptr<Drafter>> examine_drafter(const std::string& path, const ModelConfig& target,
                                                 std::unique_ptr<WeightBinder>* binder) {
  auto drafter = std::make_shared<Drafter>();
  LES_ASSIGN_OR_RETURN(drafter->gguf, open_gguf(path));
  const GgufFile& file = *drafter->gguf;
  LES_ASSIGN_OR_RETURN(const std::string arch, file.get_string("general.architecture"));
  if (arch != "dflash") {
    return make_error(Code::kUnsupported, "%s: architecture '%s' is no draft model; expected 'dflash'", path.c_str(),
                      arch.c_str());
  }
  *binder = std::make_unique<WeightBinder>(file);
  LES_RETURN_IF_ERROR(bind_draft_model(**binder, target, &drafter->model));
  const DraftModel& m = drafter->model;
  if (m.has_embedding) {
    const TensorInfo& info = *file.find_tensor("token_embd.weight");
    if (info.shape.size() != 2 || info.shape[0] != static_cast<uint64_t>(m.d_model) ||
        info.shape[1] != static_cast<uint64_t>(m.n_vocab)) {
      return make_error(Code::kCorrupt, "%s: token_embd.weight does not have %d rows of %d values", path.c_str(),
                        m.n_vocab, m.d_model);
    }
  }
  drafter->trunk_bytes = (*binder)->trunk_bytes();
  return drafter;
}

namespace {

Status load_token_map(Drafter* drafter) {
  const TensorInfo* info = drafter->gguf->find_tensor("d2t");
  if (info == nullptr) return Status::ok();
  std::vector<int64_t> ids(info->n_elements);
  if (info->size_bytes != ids.size() * sizeof(int64_t)) {
    return make_error(Code::kCorrupt, "%s: d2t is not made of 64-bit integers", drafter->gguf->path().c_str());
  }
  LES_RETURN_IF_ERROR(drafter->files[info->file_idx]->read_exact(info->offset_bytes, info->size_bytes,
                                                                 reinterpret_cast<uint8_t*>(ids.data())));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= drafter->model.n_vocab) {
      return make_error(Code::kCorrupt, "%s: d2t names token %lld; expected 0 to %d", drafter->gguf->path().c_str(),
                        static_cast<long long>(ids[i]), drafter->model.n_vocab - 1);
    }
    drafter->model.d2t[i] = static_cast<int32_t>(ids[i]);
  }
  return Status::ok();
}

}  // namespace

Status load_drafter(const WeightBinder& binder, Drafter* drafter) {
  for (const GgufFile::Shard& shard : drafter->gguf->shards()) {
    LES_ASSIGN_OR_RETURN(auto file, open_file(shard.path, FileOptions{}));
    drafter->files.push_back(std::move(file));
  }
  LES_ASSIGN_OR_RETURN(drafter->trunk, load_trunk(binder, drafter->files, {}));
  LES_RETURN_IF_ERROR(load_token_map(drafter));
  if (drafter->model.has_embedding) {
    LES_ASSIGN_OR_RETURN(drafter->embedding, EmbeddingRows::make(*drafter->gguf, drafter->files, nullptr));
    drafter->own_embed = [drafter](std::span<const int32_t> tokens, float* out) {
      return drafter->embedding.load(tokens, out);
    };
  }
  return Status::ok();
}

Result<std::shared_ptr<const Drafter>> Engine::open_drafter(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (const auto found = drafters_.find(path); found != drafters_.end()) {
    return std::shared_ptr<const Drafter>(found->second);
  }
  std::unique_ptr<WeightBinder> binder;
  LES_ASSIGN_OR_RETURN(std::shared_ptr<Drafter> drafter, examine_drafter(path, config(), &binder));
  const DraftModel& m = drafter->model;
  MemoryNeeds needs = needs_for(n_sessions_);
  needs.trunk_bytes += drafter->trunk_bytes;
  needs.kv_bytes += kv_cache_bytes(m.state_spec(), options_.kv_type, context_ + m.block_size);
  needs.scratch_per_token_bytes += m.target_layers.size() * static_cast<size_t>(m.d_target) * sizeof(float);
  needs.scratch_fixed_bytes += m.scratch_floats(plan_.chunk, n_threads(), context_) * sizeof(float);
  const MemoryPlan old = plan_;
  LES_RETURN_IF_ERROR(apply_plan(plan_memory(needs, plan_.budget_bytes, plan_.chunk)));
  if (Status loaded = load_drafter(*binder, drafter.get()); !loaded.is_ok()) {
    (void)apply_plan(old);
    return loaded;
  }
  drafters_[path] = drafter;
  return std::shared_ptr<const Drafter>(drafter);
}

}  // namespace les

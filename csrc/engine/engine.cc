#include "engine/engine.h"

#include <algorithm>

#include "engine/drafter.h"
#include "engine/model_needs.h"
#include "engine/session.h"
#include "engine/vocab.h"
#include "io/make_reader.h"

namespace les {

namespace {

// Part of the free memory that an unlimited budget may take: the rest is for everybody else.
constexpr double kFreeShare = 0.8;

Status check_options(const EngineOptions& options) {
  if (options.threads < 0 || options.threads > 256) {
    return make_error(Code::kInvalidArgument, "threads is %d; expected 0 (choose) to 256", options.threads);
  }
  if (options.context < 0 || options.context > (1 << 24)) {
    return make_error(Code::kInvalidArgument, "context is %d; expected 0 (choose) to %d", options.context, 1 << 24);
  }
  if (options.chunk < 0 || options.chunk > 4096) {
    return make_error(Code::kInvalidArgument, "chunk is %d; expected 0 (choose) to 4096", options.chunk);
  }
  return Status::ok();
}

// Without a budget: all that the model needs, within what the machine has to spare beside held_bytes of our own.
MemoryPlan plan_within(const MemoryNeeds& needs, std::optional<uint64_t> budget_bytes, int chunk,
                       uint64_t held_bytes = 0) {
  MemoryPlan plan = plan_memory(needs, budget_bytes, chunk);
  if (budget_bytes.has_value()) return plan;
  const auto affordable =
      static_cast<uint64_t>(static_cast<double>(available_memory_bytes() + held_bytes) * kFreeShare);
  if (plan.full_bytes <= affordable) return plan;
  return plan_memory(needs, std::max(affordable, plan.floor_bytes), chunk);
}

Status budget_error(const std::string& path, const MemoryPlan& plan) {
  return make_error(Code::kBudget, "%s: %s", path.c_str(), plan.message.c_str());
}

}  // namespace

Result<MemoryPlan> plan_model(const std::string& path, const EngineOptions& options, int* context) {
  LES_RETURN_IF_ERROR(check_options(options));
  LES_ASSIGN_OR_RETURN(const ModelParts parts, examine_model(path, options));
  *context = parts.context;
  return plan_within(parts.needs, options.memory_bytes, options.chunk);
}

Engine::~Engine() = default;

Status Engine::start_reader() {
  ReaderOptions reader;
  reader.kind = options_.reader;
  reader.lanes = options_.lanes;
  if (!options_.flash.empty()) {
    LES_ASSIGN_OR_RETURN(reader.flash, parse_flash(options_.flash));
  }
  if (!options_.fault.empty()) {
    LES_ASSIGN_OR_RETURN(reader.fault, parse_fault(options_.fault));
  }
  LES_ASSIGN_OR_RETURN(auto made, make_reader(reader, scheduler_->sink()));
  std::vector<const File*> files;
  for (const auto& file : files_) files.push_back(file.get());
  scheduler_->attach(std::move(made), std::move(files));
  return Status::ok();
}

Status Engine::load(const std::string& path, const EngineOptions& options, const ProgressFn& progress) {
  LES_RETURN_IF_ERROR(check_options(options));
  options_ = options;
  exec_.kernels = kernels();
  if (exec_.kernels == nullptr) {
    return make_error(Code::kUnsupported, "LES_FORCE_ISA names kernels that this build or processor does not have");
  }
  LES_ASSIGN_OR_RETURN(ModelParts parts, examine_model(path, options));
  gguf_ = parts.gguf;
  store_ = parts.store;
  graph_ = std::move(parts.graph);
  state_spec_ = parts.state_spec;
  context_ = parts.context;
  plan_ = plan_within(parts.needs, options.memory_bytes, options.chunk);
  if (!plan_.fits) return budget_error(path, plan_);

  FileOptions file_options;
  file_options.try_direct = options.direct;
  file_options.log = options.log;
  for (const GgufFile::Shard& shard : gguf_->shards()) {
    LES_ASSIGN_OR_RETURN(auto file, open_file(shard.path, file_options));
    files_.push_back(std::move(file));
  }
  LES_ASSIGN_OR_RETURN(trunk_, load_trunk(*parts.binder, files_, progress));
  LES_RETURN_IF_ERROR(graph_->prepare());
  LES_ASSIGN_OR_RETURN(embedding_, EmbeddingRows::make(*gguf_, files_, graph_->resident_embedding()));
  embed_ = [this](std::span<const int32_t> tokens, float* out) { return embedding_.load(tokens, out); };
  LES_ASSIGN_OR_RETURN(VocabSpec vocab, vocab_from_gguf(*gguf_));
  auto tokenizer = make_tokenizer(std::move(vocab));
  if (!tokenizer.is_ok()) {
    return Status(tokenizer.status().code(), gguf_->path() + ": " + tokenizer.status().message());
  }
  tokenizer_ = std::move(*tokenizer);

  pool_ = std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : default_threads());
  exec_.pool = pool_.get();
  exec_.scratch = &scratch_;
  exec_.use_float = options.use_float;
  LES_RETURN_IF_ERROR(scratch_.reserve(plan_.scratch_bytes));
  LES_RETURN_IF_ERROR(cache_.allocate(parts.expert_layers, plan_.slots_per_class, options.policy));
  scheduler_ = std::make_unique<Scheduler>(*store_, cache_, SchedulerOptions{options.verify, options.prefetch});
  LES_RETURN_IF_ERROR(start_reader());
  moe_ = std::make_unique<MoeRunner>(*store_, *scheduler_);
  std::vector<const MoeSpec*> specs;
  for (int l = 0; l < config().n_layers; ++l) specs.push_back(graph_->moe_spec(l));
  moe_->set_specs(std::move(specs));
  if (options.log) options.log(gguf_->path() + ": " + plan_.message + "; reader " + scheduler_->reader()->name());
  return Status::ok();
}

Result<std::shared_ptr<Engine>> open_engine(const std::string& path, const EngineOptions& options,
                                            const ProgressFn& progress) {
  std::shared_ptr<Engine> engine(new Engine());
  LES_RETURN_IF_ERROR(engine->load(path, options, progress));
  return engine;
}

std::vector<int> Engine::moe_layers() const {
  std::vector<int> layers;
  for (int l = 0; l < config().n_layers; ++l) {
    if (graph_->moe_spec(l) != nullptr) layers.push_back(l);
  }
  return layers;
}

// The lock is held.
Status Engine::apply_plan(const MemoryPlan& plan) {
  if (!plan.fits) return budget_error(gguf_->path(), plan);
  if (plan.slots_per_class != plan_.slots_per_class) {
    scheduler_->settle();
    LES_RETURN_IF_ERROR(cache_.resize(plan.slots_per_class));
  }
  if (plan.scratch_bytes != scratch_.planned_bytes()) LES_RETURN_IF_ERROR(scratch_.reserve(plan.scratch_bytes));
  plan_ = plan;
  return Status::ok();
}

MemoryNeeds Engine::needs_for(int n_sessions) const {
  MemoryNeeds needs = plan_.needs;
  needs.n_sessions = std::max(1, n_sessions);
  return needs;
}

Result<std::unique_ptr<Session>> Engine::make_session() {
  const std::lock_guard lock(mutex_);
  if (n_sessions_ > 0)
    LES_RETURN_IF_ERROR(apply_plan(plan_memory(needs_for(n_sessions_ + 1), plan_.budget_bytes, plan_.chunk)));
  auto session = std::make_unique<Session>(shared_from_this());
  LES_RETURN_IF_ERROR(session->state_.allocate(state_spec_, options_.kv_type, context_));
  session->is_counted_ = true;
  ++n_sessions_;
  return session;
}

void Engine::drop_session() {
  const std::lock_guard lock(mutex_);
  --n_sessions_;
  // More room for experts is welcome but never a reason to fail.
  (void)apply_plan(plan_memory(needs_for(n_sessions_), plan_.budget_bytes, plan_.chunk));
}

Status Engine::set_memory(std::optional<uint64_t> memory_bytes) {
  const std::lock_guard lock(mutex_);
  LES_RETURN_IF_ERROR(apply_plan(plan_within(needs_for(n_sessions_), memory_bytes, options_.chunk, plan_.total_bytes)));
  options_.memory_bytes = memory_bytes;
  return Status::ok();
}

Status Engine::start_probe(MoeProbeOptions options) {
  const std::lock_guard lock(mutex_);
  std::vector<const MoeSpec*> specs;
  for (int l = 0; l < config().n_layers; ++l) specs.push_back(graph_->moe_spec(l));
  const auto has_experts = [&](int l) {
    return l >= 0 && l < config().n_layers && specs[static_cast<size_t>(l)] != nullptr;
  };
  for (const int l : options.sample_layers) {
    if (!has_experts(l)) return make_error(Code::kInvalidArgument, "layer %d has no experts to sample", l);
  }
  if (options.disturbed_layer != -1) {
    const int l = options.disturbed_layer;
    if (!has_experts(l)) return make_error(Code::kInvalidArgument, "layer %d has no experts to disturb", l);
    const auto width = static_cast<size_t>(specs[static_cast<size_t>(l)]->d_in);
    if (options.disturbance.size() % width != 0) {
      return make_error(Code::kInvalidArgument, "a disturbance of %zu values is no rows of %zu",
                        options.disturbance.size(), width);
    }
  }
  probe_ = std::make_unique<MoeProbe>(std::move(options), specs, *store_);
  moe_->set_probe(probe_.get());
  return Status::ok();
}

Engine::ExpertFacts Engine::expert_facts(int layer) const {
  constexpr const char* kActNames[] = {"silu", "gelu", "gelu_tanh", "relu", "relu_squared", "swiglu_oai"};
  const MoeSpec& spec = *graph_->moe_spec(layer);
  const auto rows = [&](const Vector& v, int width) {
    const auto n = static_cast<size_t>(spec.router.n_expert) * static_cast<size_t>(width);
    return v ? std::vector<float>(v.data, v.data + n) : std::vector<float>();
  };
  const int ff = static_cast<int>(store_->layer(static_cast<uint32_t>(layer)).slices[kUp].n_out);
  return {kActNames[static_cast<int>(spec.act)], rows(spec.gate_bias, ff), rows(spec.up_bias, ff),
          rows(spec.down_bias, spec.d_in)};
}

std::vector<MoeProbeLayer> Engine::stop_probe() {
  const std::lock_guard lock(mutex_);
  moe_->set_probe(nullptr);
  if (probe_ == nullptr) return {};
  std::vector<MoeProbeLayer> layers = probe_->take_layers();
  probe_.reset();
  return layers;
}

Engine::Figures Engine::figures() {
  const std::lock_guard lock(mutex_);
  Figures f;
  f.counters = counters_;
  f.scheduler = scheduler_->stats();
  f.reader = scheduler_->reader()->stats();
  f.reader_name = scheduler_->reader()->name();
  f.n_evicted = cache_.n_evicted();
  f.wasted_bytes = cache_.wasted_bytes();
  f.cache_bytes = cache_.memory_bytes();
  f.n_slots = cache_.n_slots();
  f.scratch_high_water_bytes = scratch_.high_water_bytes();
  f.plan = plan_;
  return f;
}

void Engine::reset_figures() {
  const std::lock_guard lock(mutex_);
  counters_ = {};
  scheduler_->reset_stats();
  cache_.reset_counters();
}

}  // namespace les

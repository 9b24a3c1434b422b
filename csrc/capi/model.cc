#include <optional>

#include "capi/capi.h"

using les::Code;
using les::GgufArray;
using les::GgufType;
using les::GgufValue;
using les::make_error;
using les::Result;
using les::Status;
using les::capi::fail;
using les::capi::guard;

namespace {

// The size of version 1: what every caller has.
constexpr size_t kOptionsMinBytes = sizeof(les_options);

les_options default_options() {
  les_options options{};
  options.struct_size = sizeof(options);
  options.direct = 1;
  options.verify = 1;
  return options;
}

// What the library knows of the caller's options; NULL: the defaults.
les_status known_options(const les_options* options, les_options* known) {
  *known = default_options();
  return options == nullptr ? LES_OK : les::capi::copy_options(options, sizeof(*known), kOptionsMinBytes, known);
}

Status check_flag(const char* name, int32_t value, int32_t largest) {
  if (value >= 0 && value <= largest) return Status::ok();
  return make_error(Code::kInvalidArgument, "%s is %d; expected 0 to %d", name, value, largest);
}

std::optional<uint64_t> budget(uint64_t memory_bytes) {
  return memory_bytes == 0 ? std::optional<uint64_t>() : std::optional<uint64_t>(memory_bytes);
}

Result<les::EngineOptions> engine_options(const les_options& from) {
  constexpr les::KvType kKvTypes[] = {les::KvType::kF16, les::KvType::kF32, les::KvType::kQ8_0};
  constexpr les::PrefetchMode kModes[] = {les::PrefetchMode::kAuto, les::PrefetchMode::kOn, les::PrefetchMode::kOff};
  LES_RETURN_IF_ERROR(check_flag("kv_type", from.kv_type, 2));
  LES_RETURN_IF_ERROR(check_flag("prefetch", from.prefetch, 2));
  LES_RETURN_IF_ERROR(check_flag("compute", from.compute, 1));
  LES_RETURN_IF_ERROR(check_flag("direct", from.direct, 1));
  LES_RETURN_IF_ERROR(check_flag("verify", from.verify, 1));
  LES_RETURN_IF_ERROR(check_flag("reserved", from.reserved, 0));
  les::EngineOptions to;
  to.memory_bytes = budget(from.memory_bytes);
  to.threads = from.threads;
  to.context = from.context;
  to.chunk = from.chunk;
  to.lanes = from.lanes;
  to.kv_type = kKvTypes[from.kv_type];
  to.prefetch = kModes[from.prefetch];
  to.use_float = from.compute == LES_COMPUTE_F32;
  to.direct = from.direct == 1;
  to.verify = from.verify == 1;
  if (from.reader != nullptr) to.reader = from.reader;
  if (from.flash != nullptr) to.flash = from.flash;
  if (from.log != nullptr) {
    to.log = [log = from.log, data = from.log_data](const std::string& line) { log(data, line.c_str()); };
  }
  return to;
}

les_plan plan_struct(const les::MemoryPlan& plan, int context) {
  const les::MemoryNeeds& needs = plan.needs;
  les_plan out{};
  out.budget_bytes = plan.budget_bytes.value_or(0);
  out.floor_bytes = plan.floor_bytes;
  out.recommended_bytes = plan.recommended_bytes;
  out.full_bytes = plan.full_bytes;
  out.total_bytes = plan.total_bytes;
  const auto n_sessions = static_cast<uint64_t>(needs.n_sessions);
  out.process_bytes = needs.process_bytes;
  out.trunk_bytes = needs.trunk_bytes;
  out.tokenizer_bytes = needs.tokenizer_bytes;
  out.kv_bytes = needs.kv_bytes * n_sessions;
  out.state_bytes = needs.state_bytes * n_sessions;
  out.scratch_bytes = plan.scratch_bytes;
  out.reader_bytes = needs.reader_bytes;
  out.cache_bytes = plan.cache_bytes;
  out.expert_bytes = needs.expert_bytes;
  out.n_experts_total = needs.n_experts_total;
  out.experts_per_token = needs.experts_per_token;
  out.n_slots = plan.n_slots;
  out.chunk = plan.chunk;
  out.context = context;
  out.fits = plan.fits ? 1 : 0;
  les::capi::copy_cut(plan.message, out.message, sizeof(out.message));
  return out;
}

std::string real_text(double value) { return les::format_text("%.9g", value); }

Result<std::string> array_text(const char* key, const GgufArray& array) {
  if (!array.strings.empty() || !array.arrays.empty()) {
    return make_error(Code::kUnsupported, "%s is an array of %zu texts or arrays, which has no text form", key,
                      array.size());
  }
  std::string text = "[";
  const auto add = [&text](const std::string& item) { text += (text.size() > 1 ? ", " : "") + item; };
  for (const int64_t value : array.integers) {
    if (array.element == GgufType::kBool) {
      add(value != 0 ? "true" : "false");
    } else if (array.element == GgufType::kU64) {
      add(std::to_string(static_cast<uint64_t>(value)));
    } else {
      add(std::to_string(value));
    }
  }
  for (const double value : array.floats) add(real_text(value));
  return text + "]";
}

Result<std::string> value_text(const char* key, const GgufValue& value) {
  if (const auto* text = std::get_if<std::string>(&value.data)) return *text;
  if (const auto* number = std::get_if<uint64_t>(&value.data)) return std::to_string(*number);
  if (const auto* number = std::get_if<int64_t>(&value.data)) return std::to_string(*number);
  if (const auto* number = std::get_if<double>(&value.data)) return real_text(*number);
  if (const auto* flag = std::get_if<bool>(&value.data)) return std::string(*flag ? "true" : "false");
  return array_text(key, *std::get<std::shared_ptr<GgufArray>>(value.data));
}

}  // namespace

les_status les_options_init(les_options* options, size_t struct_size) {
  const les_options defaults = default_options();
  return les::capi::init_options(options, struct_size, &defaults, sizeof(defaults), kOptionsMinBytes);
}

les_status les_plan_memory(const char* path, const les_options* options, les_plan* plan, size_t plan_size) {
  LES_REQUIRE(path);
  LES_REQUIRE(plan);
  les_options known;
  if (const les_status status = known_options(options, &known); status != LES_OK) return status;
  return guard([&]() -> Status {
    LES_ASSIGN_OR_RETURN(const les::EngineOptions engine_opts, engine_options(known));
    int context = 0;
    LES_ASSIGN_OR_RETURN(const les::MemoryPlan made, les::plan_model(path, engine_opts, &context));
    const les_plan result = plan_struct(made, context);
    les::capi::copy_result(&result, sizeof(result), plan, plan_size);
    return Status::ok();
  });
}

les_status les_model_open(const char* path, const les_options* options, les_model** model) {
  LES_REQUIRE(path);
  LES_REQUIRE(model);
  les_options known;
  if (const les_status status = known_options(options, &known); status != LES_OK) return status;
  return guard([&]() -> Status {
    LES_ASSIGN_OR_RETURN(const les::EngineOptions engine_opts, engine_options(known));
    les::ProgressFn progress;
    if (known.progress != nullptr) {
      progress = [&known](uint64_t done, uint64_t total) { known.progress(known.progress_data, done, total); };
    }
    LES_ASSIGN_OR_RETURN(auto engine, les::open_engine(path, engine_opts, progress));
    *model = new les_model{std::move(engine)};
    return Status::ok();
  });
}

void les_model_free(les_model* model) { delete model; }

les_status les_model_plan(les_model* model, les_plan* plan, size_t plan_size) {
  LES_REQUIRE(model);
  LES_REQUIRE(plan);
  return guard([&] {
    const les_plan result = plan_struct(model->engine->figures().plan, model->engine->context());
    return les::capi::copy_result(&result, sizeof(result), plan, plan_size);
  });
}

les_status les_model_set_memory(les_model* model, uint64_t memory_bytes) {
  LES_REQUIRE(model);
  return guard([&] { return model->engine->set_memory(budget(memory_bytes)); });
}

les_status les_model_get_info(les_model* model, les_model_info* info, size_t info_size) {
  LES_REQUIRE(model);
  LES_REQUIRE(info);
  return guard([&] {
    const les::Engine& engine = *model->engine;
    les_model_info result{};
    result.n_vocab = engine.config().n_vocab;
    result.n_layers = engine.config().n_layers;
    result.n_moe_layers = static_cast<int32_t>(engine.moe_layers().size());
    result.n_experts = engine.config().n_expert;
    result.n_experts_used = engine.config().n_expert_used;
    result.context = engine.context();
    result.threads = engine.n_threads();
    les::capi::copy_cut(engine.config().arch, result.architecture, sizeof(result.architecture));
    return les::capi::copy_result(&result, sizeof(result), info, info_size);
  });
}

size_t les_model_n_metadata(const les_model* model) {
  return model == nullptr ? 0 : model->engine->file().metadata().size();
}

les_status les_model_metadata_key(const les_model* model, size_t idx, const char** key) {
  LES_REQUIRE(model);
  LES_REQUIRE(key);
  const auto& metadata = model->engine->file().metadata();
  if (idx >= metadata.size()) {
    return fail(LES_INVALID_ARGUMENT, "metadata key %zu of %zu does not exist", idx, metadata.size());
  }
  *key = metadata[idx].first.c_str();
  return LES_OK;
}

les_status les_model_metadata(const les_model* model, const char* key, char* buffer, size_t capacity, size_t* n_bytes) {
  LES_REQUIRE(model);
  LES_REQUIRE(key);
  LES_REQUIRE(n_bytes);
  return guard([&]() -> les_status {
    const GgufValue* value = model->engine->file().find(key);
    if (value == nullptr) return fail(LES_NOT_FOUND, "%s: no key '%s'", model->engine->file().path().c_str(), key);
    const auto text = value_text(key, *value);
    if (!text.is_ok()) return les::capi::report(text.status());
    return les::capi::copy_text(*text, buffer, capacity, n_bytes);
  });
}

les_status les_model_chat_template(const les_model* model, const char** text, size_t* n_bytes) {
  LES_REQUIRE(model);
  LES_REQUIRE(text);
  LES_REQUIRE(n_bytes);
  const les::GgufFile& file = model->engine->file();
  const GgufValue* value = file.find("tokenizer.chat_template");
  const auto* found = value == nullptr ? nullptr : std::get_if<std::string>(&value->data);
  if (found == nullptr) return fail(LES_NOT_FOUND, "%s: no chat template", file.path().c_str());
  *text = found->c_str();
  *n_bytes = found->size();
  return LES_OK;
}

les_status les_model_stats(les_model* model, les_stats* stats, size_t stats_size) {
  LES_REQUIRE(model);
  LES_REQUIRE(stats);
  return guard([&] {
    const les::Engine::Figures f = model->engine->figures();
    les_stats out{};
    out.n_steps = f.counters.n_steps;
    out.prefill_tokens = f.counters.prefill_tokens;
    out.decode_tokens = f.counters.decode_tokens;
    out.prefill_ns = f.counters.prefill_ns;
    out.decode_ns = f.counters.decode_ns;
    for (const les::LayerStats& layer : f.scheduler.layers) {
      out.stall_ns += layer.stall_ns;
      out.n_hit += layer.n_hit;
      out.n_miss += layer.n_miss;
      out.n_late += layer.n_late;
    }
    out.n_evicted = f.n_evicted;
    out.n_cancelled = f.scheduler.n_cancelled;
    out.n_read_errors = f.scheduler.n_errors;
    out.flash_bytes = f.scheduler.read_bytes;
    out.guessed_bytes = f.scheduler.guessed_bytes;
    out.useful_bytes = f.scheduler.useful_bytes;
    out.late_bytes = f.scheduler.late_bytes;
    out.wasted_bytes = f.wasted_bytes;
    out.device_bytes = f.reader.device_bytes;
    out.n_slots = f.n_slots;
    out.cache_bytes = f.cache_bytes;
    out.scratch_bytes = f.scratch_high_water_bytes;
    out.peak_bytes = les::peak_memory_bytes();
    les::capi::copy_cut(f.reader_name, out.reader, sizeof(out.reader));
    return les::capi::copy_result(&out, sizeof(out), stats, stats_size);
  });
}

les_status les_model_reset_stats(les_model* model) {
  LES_REQUIRE(model);
  return guard([&] {
    model->engine->reset_figures();
    return LES_OK;
  });
}

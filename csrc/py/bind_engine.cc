// Engine and Session. Arguments become C++ values first; then the GIL is released for as long as the engine works.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>

#include "engine/engine.h"
#include "engine/model_needs.h"
#include "engine/session.h"
#include "py/convert.h"
#include "py/errors.h"

namespace py = pybind11;
using les::Code;
using les::make_error;
using les::py::throw_status;
using les::py::value_or_throw;

namespace {

// A log line may come from any thread.
les::LogSink python_log(const py::object& callable) {
  auto held = std::shared_ptr<py::object>(new py::object(callable), [](py::object* object) {
    const py::gil_scoped_acquire gil;
    delete object;
  });
  return [held](const std::string& line) {
    const py::gil_scoped_acquire gil;
    try {
      (*held)(line);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("les log");
    }
  };
}

template <typename T>
T one_of(const std::string& option, const std::string& value, std::initializer_list<std::pair<const char*, T>> known) {
  std::string names;
  for (const auto& [name, result] : known) {
    if (value == name) return result;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  throw_status(
      make_error(Code::kInvalidArgument, "%s is '%s'; known: %s", option.c_str(), value.c_str(), names.c_str()));
  return {};
}

void set_option(les::EngineOptions* options, const std::string& name, const py::handle& value) {
  using les::KvType;
  using les::Policy;
  using les::PrefetchMode;
  if (name == "memory_bytes") {
    if (!value.is_none()) options->memory_bytes = value.cast<uint64_t>();
  } else if (name == "threads") {
    options->threads = value.cast<int>();
  } else if (name == "context") {
    options->context = value.cast<int>();
  } else if (name == "kv_type") {
    options->kv_type = one_of<KvType>(name, value.cast<std::string>(),
                                      {{"f16", KvType::kF16}, {"f32", KvType::kF32}, {"q8_0", KvType::kQ8_0}});
  } else if (name == "chunk") {
    options->chunk = value.cast<int>();
  } else if (name == "reader") {
    options->reader = value.cast<std::string>();
  } else if (name == "lanes") {
    options->lanes = value.cast<int>();
  } else if (name == "direct") {
    options->direct = value.cast<bool>();
  } else if (name == "flash") {
    if (!value.is_none()) options->flash = value.cast<std::string>();
  } else if (name == "fault") {
    if (!value.is_none()) options->fault = value.cast<std::string>();
  } else if (name == "verify") {
    options->verify = value.cast<bool>();
  } else if (name == "prefetch") {
    options->prefetch =
        one_of<PrefetchMode>(name, value.cast<std::string>(),
                             {{"auto", PrefetchMode::kAuto}, {"on", PrefetchMode::kOn}, {"off", PrefetchMode::kOff}});
  } else if (name == "policy") {
    options->policy = one_of<Policy>(name, value.cast<std::string>(),
                                     {{"shares", Policy::kShares}, {"lru", Policy::kLru}, {"lfu", Policy::kLfu}});
  } else if (name == "compute") {
    options->use_float = one_of<bool>(name, value.cast<std::string>(), {{"int8", false}, {"f32", true}});
  } else if (name == "log") {
    if (!value.is_none()) options->log = python_log(py::reinterpret_borrow<py::object>(value));
  } else {
    throw_status(make_error(Code::kInvalidArgument, "unknown engine option '%s'", name.c_str()));
  }
}

les::EngineOptions engine_options(const py::dict& dict) {
  les::EngineOptions options;
  for (const auto& [key, value] : dict) {
    const auto name = key.cast<std::string>();
    try {
      set_option(&options, name, value);
    } catch (const py::cast_error&) {
      throw_status(make_error(Code::kInvalidArgument, "%s is %s, which is out of range or of the wrong type",
                              name.c_str(), py::repr(value).cast<std::string>().c_str()));
    }
  }
  return options;
}

py::dict plan_dict(const les::MemoryPlan& plan, int context) {
  const les::MemoryNeeds& needs = plan.needs;
  uint64_t slot_bytes = 0;
  for (const les::SizeClass& c : needs.classes) slot_bytes = std::max(slot_bytes, c.slot_bytes);
  py::dict d;
  d["fits"] = plan.fits;
  d["message"] = plan.message;
  d["budget_bytes"] = plan.budget_bytes ? py::object(py::int_(*plan.budget_bytes)) : py::none();
  d["floor_bytes"] = plan.floor_bytes;
  d["recommended_bytes"] = plan.recommended_bytes;
  d["full_bytes"] = plan.full_bytes;
  d["total_bytes"] = plan.total_bytes;
  d["process_bytes"] = needs.process_bytes;
  d["trunk_bytes"] = needs.trunk_bytes;
  d["tokenizer_bytes"] = needs.tokenizer_bytes;
  d["kv_bytes"] = needs.kv_bytes;
  d["state_bytes"] = needs.state_bytes;
  d["scratch_bytes"] = plan.scratch_bytes;
  d["reader_bytes"] = needs.reader_bytes;
  d["cache_bytes"] = plan.cache_bytes;
  d["expert_bytes"] = needs.expert_bytes;
  d["n_slots"] = plan.n_slots;
  d["slot_bytes"] = slot_bytes;
  d["n_experts_total"] = needs.n_experts_total;
  d["experts_per_token"] = needs.experts_per_token;
  d["chunk"] = plan.chunk;
  d["context"] = context;
  return d;
}

py::dict stats_dict(const les::Engine::Figures& f) {
  py::dict d;
  d["n_steps"] = f.counters.n_steps;
  d["prefill_tokens"] = f.counters.prefill_tokens;
  d["decode_tokens"] = f.counters.decode_tokens;
  d["n_tokens"] = f.counters.prefill_tokens + f.counters.decode_tokens;
  d["prefill_ns"] = f.counters.prefill_ns;
  d["decode_ns"] = f.counters.decode_ns;
  py::list layers;
  uint64_t hit = 0, miss = 0, late = 0, predicted = 0, chosen = 0;
  int64_t stall_ns = 0;
  for (size_t l = 0; l < f.scheduler.layers.size(); ++l) {
    const les::LayerStats& s = f.scheduler.layers[l];
    if (s.n_hit + s.n_miss + s.n_late == 0) continue;
    py::dict row;
    row["layer"] = l;
    row["hit"] = s.n_hit;
    row["miss"] = s.n_miss;
    row["late"] = s.n_late;
    row["stall_ns"] = s.stall_ns;
    row["predicted"] = s.n_predicted;
    row["chosen"] = s.n_chosen;
    layers.append(row);
    hit += s.n_hit;
    miss += s.n_miss;
    late += s.n_late;
    predicted += s.n_predicted;
    chosen += s.n_chosen;
    stall_ns += s.stall_ns;
  }
  d["hit"] = hit;
  d["miss"] = miss;
  d["late"] = late;
  d["predicted"] = predicted;
  d["chosen"] = chosen;
  d["stall_ns"] = stall_ns;
  d["evicted"] = f.n_evicted;
  d["flash_bytes"] = f.scheduler.read_bytes;
  d["guessed_bytes"] = f.scheduler.guessed_bytes;
  d["useful_bytes"] = f.scheduler.useful_bytes;
  d["late_bytes"] = f.scheduler.late_bytes;
  d["wasted_bytes"] = f.wasted_bytes;
  d["cancelled"] = f.scheduler.n_cancelled;
  d["read_errors"] = f.scheduler.n_errors;
  d["reader"] = f.reader_name;
  d["read_busy_ns"] = f.reader.busy_ns;
  d["device_bytes"] = f.reader.device_bytes;
  d["direct_reads"] = f.reader.n_direct;
  d["buffered_reads"] = f.reader.n_buffered;
  d["read_retries"] = f.reader.n_retries;
  d["cache_slots"] = f.n_slots;
  d["cache_bytes"] = f.cache_bytes;
  d["scratch_bytes"] = f.scratch_high_water_bytes;
  d["peak_bytes"] = les::peak_memory_bytes();
  d["layers"] = layers;
  return d;
}

template <typename T, typename U>
py::array_t<T> array_of(const std::vector<U>& values, std::vector<py::ssize_t> shape) {
  py::array_t<T> out(std::move(shape));
  std::copy(values.begin(), values.end(), out.mutable_data());
  return out;
}

py::dict probe_dict(const les::MoeProbeLayer& p, const les::Engine::ExpertFacts& facts) {
  const py::ssize_t e = p.n_uses.empty() ? 0 : p.n_expert;
  py::dict d;
  d["layer"] = p.layer;
  d["n_expert"] = p.n_expert;
  d["act"] = facts.act;
  d["gate_bias"] = array_of<float>(facts.gate_bias, {static_cast<py::ssize_t>(facts.gate_bias.size())});
  d["up_bias"] = array_of<float>(facts.up_bias, {static_cast<py::ssize_t>(facts.up_bias.size())});
  d["down_bias"] = array_of<float>(facts.down_bias, {static_cast<py::ssize_t>(facts.down_bias.size())});
  d["uses"] = array_of<int64_t>(p.n_uses, {e});
  d["weight"] = array_of<double>(p.weight, {e});
  d["weight_sq"] = array_of<double>(p.weight_sq, {e});
  d["in_sq"] = array_of<double>(p.in_sq, {e, p.d_in});
  d["mid_sq"] = array_of<double>(p.mid_sq, {e, p.ff});
  d["out_sq"] = array_of<double>(p.out_sq, {e});
  d["x"] = array_of<float>(p.x, {p.n_samples, p.d_in});
  d["y"] = array_of<float>(p.y, {p.n_samples, p.d_in});
  d["chosen"] = array_of<int32_t>(p.chosen, {p.n_samples, p.n_used});
  d["weights"] = array_of<float>(p.weights, {p.n_samples, p.n_used});
  return d;
}

les::MoeProbeOptions probe_options(const py::dict& dict) {
  les::MoeProbeOptions options;
  for (const auto& [key, value] : dict) {
    const auto name = key.cast<std::string>();
    try {
      if (name == "moments") {
        options.moments = value.cast<bool>();
      } else if (name == "sample_layers") {
        options.sample_layers = value.cast<std::vector<int>>();
      } else if (name == "max_samples") {
        options.max_samples = value.cast<int>();
      } else if (name == "disturbed_layer") {
        options.disturbed_layer = value.cast<int>();
      } else if (name == "disturbance") {
        const auto rows = py::array_t<float, py::array::c_style | py::array::forcecast>::ensure(value);
        if (!rows) throw_status(make_error(Code::kInvalidArgument, "disturbance is no array of floats"));
        options.disturbance.assign(rows.data(), rows.data() + rows.size());
      } else {
        throw_status(make_error(Code::kInvalidArgument, "unknown probe option '%s'", name.c_str()));
      }
    } catch (const py::cast_error&) {
      throw_status(
          make_error(Code::kInvalidArgument, "probe option %s is out of range or of the wrong type", name.c_str()));
    }
  }
  return options;
}

// The engine behind a Python object; gone after close.
class PyEngine {
 public:
  PyEngine(const std::string& path, const py::dict& options, const py::object& progress) {
    const les::EngineOptions engine_opts = engine_options(options);
    les::ProgressFn report;
    if (!progress.is_none()) {
      report = [&progress](uint64_t done_bytes, uint64_t total_bytes) {
        const py::gil_scoped_acquire gil;
        progress(done_bytes, total_bytes);
      };
    }
    auto opened = [&] {
      const py::gil_scoped_release no_gil;
      return les::open_engine(path, engine_opts, report);
    }();
    engine_ = value_or_throw(std::move(opened));
  }

  les::Engine& get() const {
    if (engine_ == nullptr) throw_status(make_error(Code::kInvalidArgument, "the model is closed"));
    return *engine_;
  }
  void close() {
    std::shared_ptr<les::Engine> last = std::move(engine_);
    const py::gil_scoped_release no_gil;  // joins reader threads, which may want to log
    last.reset();
  }

 private:
  std::shared_ptr<les::Engine> engine_;
};

struct PyDrafter {
  std::shared_ptr<const les::Drafter> drafter;
};

class PySession {
 public:
  explicit PySession(std::unique_ptr<les::Session> session) : session_(std::move(session)) {}

  les::Session& get() const {
    if (session_ == nullptr) throw_status(make_error(Code::kInvalidArgument, "the session is closed"));
    return *session_;
  }
  void close() {
    std::unique_ptr<les::Session> last = std::move(session_);
    const py::gil_scoped_release no_gil;
    last.reset();
  }

  py::array_t<float> eval(const std::vector<int32_t>& tokens, bool all_logits) {
    les::Session& session = get();
    const auto n_rows = static_cast<py::ssize_t>(all_logits ? tokens.size() : 1);
    py::array_t<float> logits({n_rows, static_cast<py::ssize_t>(session.engine().config().n_vocab)});
    float* data = logits.mutable_data();
    const les::Status status = [&] {
      const py::gil_scoped_release no_gil;
      return session.eval(tokens, tokens.empty() ? 0 : static_cast<int>(n_rows), data);
    }();
    throw_status(status);
    return logits;
  }

  py::dict draft(int anchor, int n_tokens, bool trace) {
    les::DraftResult result;
    without_gil([&](les::Session& s) { return s.draft(anchor, n_tokens, trace, &result); });
    py::dict d;
    d["tokens"] = result.tokens;
    d["confidences"] = result.confidences.empty() ? py::object(py::none()) : py::cast(result.confidences);
    if (trace) {
      const auto copy = [](const std::vector<float>& x) {
        return py::array_t<float>(static_cast<py::ssize_t>(x.size()), x.data());
      };
      d["hidden"] = copy(result.hidden);
      d["base_logits"] = copy(result.base_logits);
      d["logits"] = copy(result.logits);
    }
    return d;
  }

  py::array_t<int32_t> routing() const {
    const les::Session& session = get();
    const auto n = static_cast<py::ssize_t>(session.routing_tokens());
    const auto used = static_cast<py::ssize_t>(session.engine().config().n_expert_used);
    const auto n_layers = n * used == 0 ? 0 : static_cast<py::ssize_t>(session.routing().size()) / (n * used);
    py::array_t<int32_t> out({n_layers, n, used});
    std::copy(session.routing().begin(), session.routing().end(), out.mutable_data());
    return out;
  }

  template <typename Fn>
  void without_gil(Fn fn) {
    les::Session& session = get();
    const les::Status status = [&] {
      const py::gil_scoped_release no_gil;
      return fn(session);
    }();
    throw_status(status);
  }

 private:
  std::unique_ptr<les::Session> session_;
};

void bind_session(py::module_& m) {
  py::class_<PyDrafter>(m, "Drafter")
      .def_property_readonly("block", [](const PyDrafter& d) { return d.drafter->model.max_tokens(); })
      .def_property_readonly("target_layers", [](const PyDrafter& d) { return d.drafter->model.target_layers; })
      .def_property_readonly("size_bytes", [](const PyDrafter& d) { return d.drafter->trunk_bytes; });
  py::class_<PySession>(m, "Session")
      .def_property_readonly("position", [](const PySession& s) { return s.get().position(); })
      .def_property_readonly("tokens", [](const PySession& s) { return s.get().tokens(); })
      .def("eval", &PySession::eval, py::arg("tokens"), py::arg("all_logits") = false)
      .def("routing", &PySession::routing)
      .def(
          "rewind", [](PySession& s, int n) { s.without_gil([n](les::Session& x) { return x.rewind(n); }); },
          py::arg("n"))
      .def(
          "attach_drafter",
          [](PySession& s, const PyDrafter& d) {
            s.without_gil([&d](les::Session& x) { return x.attach_drafter(d.drafter); });
          },
          py::arg("drafter"))
      .def_property_readonly("drafter_rows", [](const PySession& s) { return s.get().drafter_rows(); })
      .def("draft", &PySession::draft, py::arg("anchor"), py::arg("n_tokens"), py::arg("trace") = false)
      .def("cancel", [](PySession& s) { s.get().cancel(); })
      .def(
          "save",
          [](PySession& s, const std::string& path) { s.without_gil([&](les::Session& x) { return x.save(path); }); },
          py::arg("path"))
      .def(
          "load",
          [](PySession& s, const std::string& path) { s.without_gil([&](les::Session& x) { return x.load(path); }); },
          py::arg("path"))
      .def("close", &PySession::close);
}

}  // namespace

void bind_engine(py::module_& m) {
  bind_session(m);
  m.attr("LOG_TOKENS") = les::kLogTokens;
  m.def(
      "plan_memory",
      [](const std::string& path, const py::dict& options) {
        const les::EngineOptions engine_opts = engine_options(options);
        int context = 0;
        auto planned = [&] {
          const py::gil_scoped_release no_gil;
          return les::plan_model(path, engine_opts, &context);
        }();
        const les::MemoryPlan plan = value_or_throw(std::move(planned));
        return plan_dict(plan, context);
      },
      py::arg("path"), py::arg("options") = py::dict());

  m.def(
      "bound_tensors",
      [](const std::string& path) {
        const les::ModelParts parts = value_or_throw(les::examine_model(path, {}));
        std::vector<std::string> names;
        for (const les::BoundTensor& tensor : parts.binder->tensors()) names.push_back(tensor.info->name);
        return names;
      },
      py::arg("path"));

  py::class_<PyEngine>(m, "Engine")
      .def(py::init<const std::string&, const py::dict&, const py::object&>(), py::arg("path"),
           py::arg("options") = py::dict(), py::arg("progress") = py::none())
      .def_property_readonly(
          "tokenizer", [](const PyEngine& e) { return std::const_pointer_cast<les::Tokenizer>(e.get().tokenizer()); })
      .def_property_readonly("plan", [](const PyEngine& e) { return plan_dict(e.get().plan(), e.get().context()); })
      .def_property_readonly("architecture", [](const PyEngine& e) { return e.get().config().arch; })
      .def_property_readonly("n_vocab", [](const PyEngine& e) { return e.get().config().n_vocab; })
      .def_property_readonly("n_layers", [](const PyEngine& e) { return e.get().config().n_layers; })
      .def_property_readonly("context", [](const PyEngine& e) { return e.get().context(); })
      .def_property_readonly("moe_layers", [](const PyEngine& e) { return e.get().moe_layers(); })
      .def_property_readonly("n_experts", [](const PyEngine& e) { return e.get().config().n_expert; })
      .def_property_readonly("n_experts_used", [](const PyEngine& e) { return e.get().config().n_expert_used; })
      .def_property_readonly("threads", [](const PyEngine& e) { return e.get().n_threads(); })
      .def_property_readonly("metadata", [](const PyEngine& e) { return les::py::metadata_dict(e.get().file()); })
      .def("session",
           [](PyEngine& e) {
             les::Engine& engine = e.get();
             auto made = [&] {
               const py::gil_scoped_release no_gil;
               return engine.make_session();
             }();
             return std::make_unique<PySession>(value_or_throw(std::move(made)));
           })
      .def(
          "open_drafter",
          [](PyEngine& e, const std::string& path) {
            les::Engine& engine = e.get();
            auto opened = [&] {
              const py::gil_scoped_release no_gil;
              return engine.open_drafter(path);
            }();
            return PyDrafter{value_or_throw(std::move(opened))};
          },
          py::arg("path"))
      .def("stats",
           [](PyEngine& e) {
             les::Engine& engine = e.get();
             const les::Engine::Figures figures = [&] {
               const py::gil_scoped_release no_gil;
               return engine.figures();
             }();
             return stats_dict(figures);
           })
      .def("reset_stats",
           [](PyEngine& e) {
             les::Engine& engine = e.get();
             const py::gil_scoped_release no_gil;
             engine.reset_figures();
           })
      .def(
          "set_memory",
          [](PyEngine& e, std::optional<uint64_t> memory_bytes) {
            les::Engine& engine = e.get();
            const les::Status status = [&] {
              const py::gil_scoped_release no_gil;
              return engine.set_memory(memory_bytes);
            }();
            throw_status(status);
          },
          py::arg("memory_bytes"))
      .def(
          "start_probe",
          [](PyEngine& e, const py::dict& options) {
            les::MoeProbeOptions probe = probe_options(options);
            les::Engine& engine = e.get();
            const les::Status status = [&] {
              const py::gil_scoped_release no_gil;
              return engine.start_probe(std::move(probe));
            }();
            throw_status(status);
          },
          py::arg("options"))
      .def("stop_probe",
           [](PyEngine& e) {
             les::Engine& engine = e.get();
             const std::vector<les::MoeProbeLayer> layers = [&] {
               const py::gil_scoped_release no_gil;
               return engine.stop_probe();
             }();
             py::list out;
             for (const les::MoeProbeLayer& layer : layers)
               out.append(probe_dict(layer, engine.expert_facts(layer.layer)));
             return out;
           })
      .def("close", &PyEngine::close);
}

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <thread>

#include "cpu/thread_pool.h"
#include "kernels/bench.h"
#include "kernels/kernels.h"
#include "py/errors.h"

namespace py = pybind11;

namespace {

std::vector<std::string> usable_isas() {
  std::vector<std::string> names;
  for (const char* isa : {"avx512vbmi", "avx512", "avxvnni", "avx2", "neon_i8mm", "neon_dotprod", "neon", "scalar"}) {
    if (les::kernels_named(isa) != nullptr) names.emplace_back(isa);
  }
  return names;
}

// What les.cli.bench_kernels passes: the table in use, and how to measure.
les::BenchOptions bench_options(int threads, size_t memory_bytes, int rounds, bool use_float) {
  les::BenchOptions options;
  options.table = les::kernels();
  options.n_threads = threads;
  options.memory_bytes = memory_bytes;
  options.n_rounds = rounds;
  options.use_float = use_float;
  return options;
}

py::tuple bench_decode(const std::string& type, int n_in, int n_out, int threads, size_t memory_bytes, int rounds,
                       bool use_float) {
  const les::QType id = les::py::value_or_throw(les::qtype_from_name(type));
  les::Result<les::StreamSpeed> speed = [&] {
    const py::gil_scoped_release no_gil;
    return les::bench_decode(bench_options(threads, memory_bytes, rounds, use_float), id, {n_in, n_out});
  }();
  const les::StreamSpeed found = les::py::value_or_throw(std::move(speed));
  return py::make_tuple(found.weight_bytes_per_s, found.read_bytes_per_s);
}

double bench_prefill(const std::string& type, int n_in, int n_out, int columns, int threads, int rounds,
                     bool use_float) {
  const les::QType id = les::py::value_or_throw(les::qtype_from_name(type));
  les::Result<double> speed = [&] {
    const py::gil_scoped_release no_gil;
    return les::bench_prefill(bench_options(threads, 0, rounds, use_float), id, {n_in, n_out}, columns);
  }();
  return les::py::value_or_throw(std::move(speed));
}

double bench_dot_peak(int threads, int rounds) {
  les::Result<double> speed = [&] {
    const py::gil_scoped_release no_gil;
    return les::bench_dot_peak(bench_options(threads, 0, rounds, false));
  }();
  return les::py::value_or_throw(std::move(speed));
}

}  // namespace

void bind_cpu(py::module_& m) {
  m.def("isa", [] {
    const les::KernelTable* table = les::kernels();
    if (table == nullptr) {
      les::py::throw_status(les::Status(les::Code::kUnsupported,
                                        "LES_FORCE_ISA names kernels that this build or processor does not have"));
    }
    return std::string(table->isa);
  });
  m.def("isas", &usable_isas);
  m.def("cpu_info", [] {
    py::dict info;
    info["isas"] = usable_isas();
    info["cores"] = std::thread::hardware_concurrency();
    info["default_threads"] = les::default_threads();
    return info;
  });
  m.def("bench_decode", &bench_decode, py::arg("type"), py::arg("n_in"), py::arg("n_out"), py::arg("threads"),
        py::arg("memory_bytes"), py::arg("rounds"), py::arg("use_float"));
  m.def("bench_prefill", &bench_prefill, py::arg("type"), py::arg("n_in"), py::arg("n_out"), py::arg("columns"),
        py::arg("threads"), py::arg("rounds"), py::arg("use_float"));
  m.def("bench_dot_peak", &bench_dot_peak, py::arg("threads"), py::arg("rounds"));
}

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <thread>

#include "cpu/thread_pool.h"
#include "kernels/kernels.h"
#include "py/errors.h"

namespace py = pybind11;

namespace {

std::vector<std::string> usable_isas() {
  std::vector<std::string> names;
  for (const char* isa : {"avx512vbmi", "avx512", "avxvnni", "avx2", "neon_dotprod", "neon", "scalar"}) {
    if (les::kernels_named(isa) != nullptr) names.emplace_back(isa);
  }
  return names;
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
}

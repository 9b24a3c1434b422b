// les._core: one function for each topic, each in a file of its own.
#include <pybind11/pybind11.h>

namespace py = pybind11;

void bind_cpu(py::module_& m);
void bind_store(py::module_& m);
void bind_quant(py::module_& m);
void bind_text(py::module_& m);
void bind_engine(py::module_& m);

PYBIND11_MODULE(_core, m) {
  m.doc() = "The native engine of les.";
  m.attr("__version__") = LES_VERSION;
  bind_cpu(m);
  bind_store(m);
  bind_quant(m);
  bind_text(m);
  bind_engine(m);
}

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "py/errors.h"
#include "quant/codec.h"
#include "quant/qtype.h"

namespace py = pybind11;

void bind_quant(py::module_& m) {
  m.def("qtype_info", [](const std::string& name) {
    const les::QTypeInfo& info = les::qtype_info(les::py::value_or_throw(les::qtype_from_name(name)));
    return py::make_tuple(static_cast<uint32_t>(info.id), info.block_elements, info.block_bytes);
  });
  m.def("dequantize", [](const std::string& name, const py::array_t<uint8_t, py::array::c_style | py::array::forcecast>& data, int64_t n_in) {
    const les::QType type = les::py::value_or_throw(les::qtype_from_name(name));
    const les::DequantizeFn decode = les::dequantizer(type);
    if (decode == nullptr) les::py::throw_status(les::make_error(les::Code::kUnsupported, "%s is no weight type", name.c_str()));
    const auto row = static_cast<py::ssize_t>(les::py::value_or_throw(les::row_bytes(type, static_cast<uint64_t>(n_in))));
    if (row == 0 || data.size() % row != 0) les::py::throw_status(les::make_error(les::Code::kInvalidArgument, "%zd bytes are not whole rows of %zd", data.size(), row));
    py::array_t<float> out({data.size() / row, static_cast<py::ssize_t>(n_in)});
    for (py::ssize_t r = 0; r < data.size() / row; ++r) decode(data.data() + r * row, n_in, out.mutable_data() + r * n_in);
    return out;
  });
}

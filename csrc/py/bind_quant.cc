// Quant types: facts, decoding and encoding of numpy arrays.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "py/errors.h"
#include "quant/codec.h"
#include "quant/qtype.h"
#include "quant/quantize.h"

namespace py = pybind11;

namespace {

using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;
using Bytes = py::array_t<uint8_t, py::array::c_style | py::array::forcecast>;

// Rows are whole blocks: what a file could get wrong is here the caller's mistake.
int64_t checked_row_bytes(les::QType type, int64_t n_in) {
  if (n_in <= 0)
    les::py::throw_status(
        les::make_error(les::Code::kInvalidArgument, "rows of %lld weights", static_cast<long long>(n_in)));
  const auto bytes = les::row_bytes(type, static_cast<uint64_t>(n_in));
  if (!bytes.is_ok()) les::py::throw_status(les::Status(les::Code::kInvalidArgument, bytes.status().message()));
  return static_cast<int64_t>(*bytes);
}

py::tuple info_of(const std::string& name) {
  const les::QTypeInfo& info = les::qtype_info(les::py::value_or_throw(les::qtype_from_name(name)));
  return py::make_tuple(static_cast<uint32_t>(info.id), info.block_elements, info.block_bytes);
}

Floats dequantize(const std::string& name, const Bytes& data, int64_t n_in) {
  const les::QType type = les::py::value_or_throw(les::qtype_from_name(name));
  const les::DequantizeFn decode = les::dequantizer(type);
  if (decode == nullptr)
    les::py::throw_status(les::make_error(les::Code::kUnsupported, "%s is no weight type", les::qtype_info(type).name));
  const int64_t row = checked_row_bytes(type, n_in);
  if (data.size() % row != 0) {
    les::py::throw_status(les::make_error(les::Code::kInvalidArgument, "%lld bytes are not whole rows of %lld",
                                          static_cast<long long>(data.size()), static_cast<long long>(row)));
  }
  const int64_t n_rows = data.size() / row;
  Floats out({n_rows, n_in});
  const uint8_t* from = data.data();
  float* to = out.mutable_data();
  const py::gil_scoped_release no_gil;
  for (int64_t r = 0; r < n_rows; ++r) decode(from + r * row, n_in, to + r * n_in);
  return out;
}

Bytes quantize(const std::string& name, const Floats& x, const std::optional<Floats>& importance, int threads) {
  const les::QType type = les::py::value_or_throw(les::qtype_from_name(name));
  if (x.ndim() != 2)
    les::py::throw_status(
        les::make_error(les::Code::kInvalidArgument, "x has %d dimensions instead of 2", static_cast<int>(x.ndim())));
  const int64_t n_rows = x.shape(0), n_in = x.shape(1);
  if (threads < 1)
    les::py::throw_status(les::make_error(les::Code::kInvalidArgument, "threads is %d; it must be 1 or more", threads));
  if (importance && importance->size() != n_in) {
    les::py::throw_status(les::make_error(les::Code::kInvalidArgument, "importance has %lld values for %lld columns",
                                          static_cast<long long>(importance->size()), static_cast<long long>(n_in)));
  }
  const int64_t row = checked_row_bytes(type, n_in);
  Bytes out({n_rows, row});
  const float* from = x.data();
  const float* weights = importance ? importance->data() : nullptr;
  uint8_t* to = out.mutable_data();
  const int64_t n_parts = std::clamp<int64_t>(n_rows, 1, std::min(threads, 256));
  std::vector<les::Status> results(static_cast<size_t>(n_parts));
  {
    const py::gil_scoped_release no_gil;
    const auto run = [&](int64_t part) {
      const int64_t first = n_rows * part / n_parts, last = n_rows * (part + 1) / n_parts;
      results[static_cast<size_t>(part)] =
          les::quantize_rows(type, from + first * n_in, last - first, n_in, weights, to + first * row);
    };
    std::vector<std::thread> helpers;
    int64_t n_started = 1;
    try {
      for (; n_started < n_parts; ++n_started) helpers.emplace_back(run, n_started);
    } catch (const std::exception&) {
      // No more threads to be had: this one does the rest.
    }
    run(0);
    for (int64_t part = n_started; part < n_parts; ++part) run(part);
    for (std::thread& helper : helpers) helper.join();
  }
  for (const les::Status& status : results) les::py::throw_status(status);
  return out;
}

}  // namespace

void bind_quant(py::module_& m) {
  m.def("qtype_info", info_of, py::arg("name"));
  m.def("dequantize", dequantize, py::arg("type"), py::arg("data"), py::arg("n_in"));
  m.def("quantize", quantize, py::arg("type"), py::arg("x"), py::arg("importance") = py::none(),
        py::arg("threads") = 1);
}

// GGUF headers and where experts lie, for packing, planning and showing.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "base/checksum.h"
#include "py/convert.h"
#include "py/errors.h"
#include "store/expert_store.h"
#include "store/gguf.h"

namespace py = pybind11;

namespace {

const char* type_name(les::GgufType type) {
  constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                    "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<size_t>(type)];
}

py::object text_object(const std::string& text) {
  // Vocabularies hold bytes that are no UTF-8; surrogates keep them apart.
  return py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape"));
}

py::list array_list(const les::GgufArray& array) {
  py::list list;
  using les::GgufType;
  for (const int64_t x : array.integers) {
    if (array.element == GgufType::kBool) {
      list.append(py::bool_(x != 0));
    } else if (array.element == GgufType::kU64) {
      list.append(py::int_(static_cast<uint64_t>(x)));
    } else {
      list.append(py::int_(x));
    }
  }
  for (const double x : array.floats) list.append(py::float_(x));
  for (const std::string& x : array.strings) list.append(text_object(x));
  for (const les::GgufValue& x : array.arrays) list.append(les::py::value_object(x));
  return list;
}

// An open file with its experts; holds both for as long as Python looks.
struct PyGguf {
  std::shared_ptr<les::GgufFile> file;
  std::shared_ptr<les::ExpertStore> store;
};

struct PyExpertLayer {
  std::shared_ptr<les::ExpertStore> store;
  uint32_t layer;
  const les::ExpertLayer& get() const { return store->layer(layer); }
  void check(uint32_t expert) const {
    if (expert < get().n_expert) return;
    les::py::throw_status(les::make_error(les::Code::kInvalidArgument, "layer %u has experts 0 to %u; not %u", layer,
                                          get().n_expert - 1, expert));
  }
};

py::dict slices_dict(const les::ExpertLayer& layer) {
  constexpr const char* kNames[] = {"gate", "up", "down"};
  py::dict slices;
  for (size_t i = 0; i < layer.slices.size(); ++i) {
    const les::SliceInfo& slice = layer.slices[i];
    if (!slice.is_present) continue;
    py::dict d;
    d["type"] = les::qtype_info(slice.type).name;
    d["n_in"] = slice.n_in;
    d["n_out"] = slice.n_out;
    d["row_bytes"] = slice.row_bytes;
    d["size_bytes"] = slice.size_bytes;
    d["offset_bytes"] = slice.offset_bytes;
    slices[kNames[i]] = d;
  }
  return slices;
}

}  // namespace

py::object les::py::value_object(const GgufValue& value) {
  return std::visit(
      [](const auto& x) -> pybind11::object {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<T, std::string>) {
          return text_object(x);
        } else if constexpr (std::is_same_v<T, std::shared_ptr<GgufArray>>) {
          return array_list(*x);
        } else {
          return pybind11::cast(x);
        }
      },
      value.data);
}

py::dict les::py::metadata_dict(const GgufFile& file) {
  pybind11::dict d;
  for (const auto& [key, value] : file.metadata()) d[text_object(key)] = value_object(value);
  return d;
}

void bind_store(py::module_& m) {
  m.def(
      "xxh3_64",
      [](const py::buffer& data) {
        const py::buffer_info info = data.request();
        const py::gil_scoped_release no_gil;
        return les::xxh3_64(info.ptr, static_cast<size_t>(info.size * info.itemsize));
      },
      py::arg("data"));

  py::class_<les::TensorInfo>(m, "TensorInfo")
      .def_readonly("name", &les::TensorInfo::name)
      .def_property_readonly("type", [](const les::TensorInfo& t) { return les::qtype_info(t.type).name; })
      .def_property_readonly("shape", [](const les::TensorInfo& t) { return py::tuple(py::cast(t.shape)); })
      .def_readonly("file_idx", &les::TensorInfo::file_idx)
      .def_readonly("offset_bytes", &les::TensorInfo::offset_bytes)
      .def_readonly("size_bytes", &les::TensorInfo::size_bytes)
      .def_readonly("n_elements", &les::TensorInfo::n_elements);

  py::class_<PyExpertLayer>(m, "ExpertLayer")
      .def_readonly("layer", &PyExpertLayer::layer)
      .def_property_readonly("n_expert", [](const PyExpertLayer& l) { return l.get().n_expert; })
      .def_property_readonly("slot_bytes", [](const PyExpertLayer& l) { return l.get().slot_bytes; })
      .def_property_readonly("slices", [](const PyExpertLayer& l) { return slices_dict(l.get()); })
      .def(
          "extents",
          [](const PyExpertLayer& l, uint32_t expert) {
            l.check(expert);
            std::vector<std::tuple<uint32_t, uint64_t, uint64_t, uint64_t>> extents;
            for (const les::Extent& e : l.store->extents({l.layer, expert}))
              extents.emplace_back(e.file_idx, e.offset_bytes, e.size_bytes, e.slot_offset_bytes);
            return extents;
          },
          py::arg("expert"))
      .def(
          "checksum",
          [](const PyExpertLayer& l, uint32_t expert) -> std::optional<uint64_t> {
            l.check(expert);
            uint64_t value = 0;
            if (!l.store->checksum({l.layer, expert}, &value)) return std::nullopt;
            return value;
          },
          py::arg("expert"));

  py::class_<PyGguf>(m, "GgufFile")
      .def(py::init([](const std::string& path) {
             PyGguf gguf;
             gguf.file = les::py::value_or_throw(les::open_gguf(path));
             gguf.store = les::py::value_or_throw(les::open_expert_store(gguf.file));
             return gguf;
           }),
           py::arg("path"))
      .def_property_readonly("version", [](const PyGguf& g) { return g.file->version(); })
      .def_property_readonly("alignment_bytes", [](const PyGguf& g) { return g.file->alignment_bytes(); })
      .def_property_readonly("shards",
                             [](const PyGguf& g) {
                               std::vector<std::pair<std::string, uint64_t>> shards;
                               for (const auto& shard : g.file->shards())
                                 shards.emplace_back(shard.path, shard.size_bytes);
                               return shards;
                             })
      .def_property_readonly("metadata", [](const PyGguf& g) { return les::py::metadata_dict(*g.file); })
      .def_property_readonly("metadata_types",
                             [](const PyGguf& g) {
                               py::dict d;
                               for (const auto& [key, value] : g.file->metadata()) {
                                 const auto* array = std::get_if<std::shared_ptr<les::GgufArray>>(&value.data);
                                 d[text_object(key)] = py::make_tuple(
                                     type_name(value.type),
                                     array == nullptr ? py::object(py::none()) : py::str(type_name((*array)->element)));
                               }
                               return d;
                             })
      .def_property_readonly("tensors", [](const PyGguf& g) { return g.file->tensors(); })
      .def_property_readonly("expert_layers",
                             [](const PyGguf& g) {
                               std::vector<PyExpertLayer> layers;
                               for (uint32_t l = 0; l < g.store->n_layers(); ++l) {
                                 if (g.store->layer(l).has_experts) layers.push_back({g.store, l});
                               }
                               return layers;
                             })
      .def_property_readonly("is_packed", [](const PyGguf& g) { return g.store->is_packed(); });
}

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "engine/vocab.h"
#include "py/errors.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace py = pybind11;
using les::Tokenizer;

namespace {
py::object optional_id(int32_t id) { return id == les::kNoToken ? py::object(py::none()) : py::object(py::int_(id)); }
}  // namespace

void bind_text(py::module_& m) {
  py::class_<Tokenizer, std::shared_ptr<Tokenizer>>(m, "Tokenizer")
      .def_static("from_gguf",
                  [](const std::string& path) {
                    const auto file = les::py::value_or_throw(les::open_gguf(path));
                    auto spec = les::py::value_or_throw(les::vocab_from_gguf(*file));
                    return std::shared_ptr<Tokenizer>(les::py::value_or_throw(les::make_tokenizer(std::move(spec))));
                  })
      .def(
          "encode",
          [](const Tokenizer& t, const std::string& text, bool markup, bool special) {
            return t.encode(text, {markup, special});
          },
          py::arg("text"), py::arg("markup") = false, py::arg("special") = false)
      .def(
          "decode",
          [](const Tokenizer& t, const std::vector<int32_t>& ids, bool show) {
            return les::repair_utf8(t.decode(ids, show), true, nullptr);
          },
          py::arg("ids"), py::arg("show_control") = false)
      .def(
          "decode_bytes",
          [](const Tokenizer& t, const std::vector<int32_t>& ids, bool show) { return py::bytes(t.decode(ids, show)); },
          py::arg("ids"), py::arg("show_control") = false)
      .def(
          "token_bytes", [](const Tokenizer& t, int32_t id, bool show) { return py::bytes(t.token_bytes(id, show)); },
          py::arg("id"), py::arg("show_control") = false)
      .def("token_to_id", [](const Tokenizer& t, const std::string& s) { return optional_id(t.token_to_id(s)); })
      .def("id_to_token", [](const Tokenizer& t, int32_t id) { return t.spec().tokens.at(static_cast<size_t>(id)); })
      .def("is_control", &Tokenizer::is_control)
      .def("is_eog", &Tokenizer::is_eog)
      .def_property_readonly("n_vocab", &Tokenizer::n_vocab)
      .def_property_readonly("bos", [](const Tokenizer& t) { return optional_id(t.spec().bos); })
      .def_property_readonly("eos", [](const Tokenizer& t) { return optional_id(t.spec().eos); })
      .def_property_readonly("eog",
                             [](const Tokenizer& t) {
                               std::vector<int32_t> ids;
                               for (int32_t i = 0; i < t.n_vocab(); ++i)
                                 if (t.is_eog(i)) ids.push_back(i);
                               return ids;
                             })
      .def_property_readonly("adds_bos", &Tokenizer::adds_bos);
  py::class_<les::Detokenizer>(m, "Detokenizer")
      .def(py::init([](const std::shared_ptr<Tokenizer>& t, bool show) { return les::Detokenizer(t, show); }),
           py::arg("tokenizer"), py::arg("show_control") = false)
      .def("add", &les::Detokenizer::add)
      .def("finish", &les::Detokenizer::finish);
}

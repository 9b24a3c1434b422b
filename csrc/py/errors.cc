#include "py/errors.h"

#include <pybind11/pybind11.h>

namespace les::py {

namespace {

const char* class_name(Code code) {
  switch (code) {
    case Code::kInvalidArgument: return "InvalidArgumentError";
    case Code::kNotFound: return "NotFoundError";
    case Code::kCorrupt: return "CorruptFileError";
    case Code::kUnsupported: return "UnsupportedError";
    case Code::kIo: return "ReadError";
    case Code::kOutOfMemory: return "OutOfMemoryError";
    case Code::kBudget: return "BudgetError";
    case Code::kCancelled: return "CancelledError";
    case Code::kOk:
    case Code::kInternal: break;
  }
  return "InternalError";
}

}  // namespace

void throw_status(const Status& status) {
  if (status.is_ok()) return;
  const pybind11::object type = pybind11::module_::import("les.errors").attr(class_name(status.code()));
  // A message may quote a path or a key that is no UTF-8.
  const std::string& text = status.message();
  const auto message = pybind11::reinterpret_steal<pybind11::object>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
  PyErr_SetObject(type.ptr(), message.ptr());
  throw pybind11::error_already_set();
}

}  // namespace les::py

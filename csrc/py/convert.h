// Metadata as Python values.
#pragma once

#include <pybind11/pybind11.h>

#include "store/gguf.h"

namespace les::py {

pybind11::object value_object(const GgufValue& value);
pybind11::dict metadata_dict(const GgufFile& file);

}  // namespace les::py

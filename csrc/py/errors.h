// Status codes as Python exceptions: the classes of les.errors.
#pragma once

#include "base/status.h"

namespace les::py {

// Raises the exception of the status's code; returns on ok. The GIL is held.
void throw_status(const Status& status);

template <typename T>
T value_or_throw(Result<T> result) {
  if (!result.is_ok()) throw_status(result.status());
  return std::move(*result);
}

}  // namespace les::py

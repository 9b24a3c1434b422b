// XXH3-64 with seed 0 (Yann Collet, xxHash 0.8): the checksum of records and trunk tensors. Pure function.
#pragma once

#include <cstddef>
#include <cstdint>

namespace les {

uint64_t xxh3_64(const void* data, size_t size_bytes);

}  // namespace les

// Quant types: their GGUF ids, names and block sizes. Pure data; knows no arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace les {

// Values are the ids that GGUF files store.
enum class QType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
};

constexpr size_t kQTypeSlots = 64;  // size of a table indexed by id

struct QTypeInfo {
  QType id;
  const char* name;         // as GGUF tools print it: "Q4_K"
  uint32_t block_elements;  // weights in one block; rows are whole blocks
  uint32_t block_bytes;
  bool is_weight;           // has a dequantizer, so a matrix may have it
};

// Null for an id this build does not know.
const QTypeInfo* qtype_info(uint32_t id);
inline const QTypeInfo& qtype_info(QType type) { return *qtype_info(static_cast<uint32_t>(type)); }

// By name, upper or lower case ("q4_k", "Q8_0").
Result<QType> qtype_from_name(std::string_view name);

// Bytes of a row of n_elements, which must be whole blocks and must not overflow.
Result<uint64_t> row_bytes(QType type, uint64_t n_elements);

}  // namespace les

#include "quant/qtype.h"

#include <array>
#include <cctype>
#include <string>

#include "base/bytes.h"

namespace les {

namespace {

constexpr QTypeInfo kInfos[] = {
    {QType::kF32, "F32", 1, 4, true},
    {QType::kF16, "F16", 1, 2, true},
    {QType::kQ4_0, "Q4_0", 32, 18, true},
    {QType::kQ4_1, "Q4_1", 32, 20, true},
    {QType::kQ5_0, "Q5_0", 32, 22, true},
    {QType::kQ5_1, "Q5_1", 32, 24, true},
    {QType::kQ8_0, "Q8_0", 32, 34, true},
    {QType::kQ8_1, "Q8_1", 32, 36, false},
    {QType::kQ2_K, "Q2_K", 256, 84, true},
    {QType::kQ3_K, "Q3_K", 256, 110, true},
    {QType::kQ4_K, "Q4_K", 256, 144, true},
    {QType::kQ5_K, "Q5_K", 256, 176, true},
    {QType::kQ6_K, "Q6_K", 256, 210, true},
    {QType::kQ8_K, "Q8_K", 256, 292, false},
    {QType::kIQ2_XXS, "IQ2_XXS", 256, 66, true},
    {QType::kIQ2_XS, "IQ2_XS", 256, 74, true},
    {QType::kIQ3_XXS, "IQ3_XXS", 256, 98, true},
    {QType::kIQ1_S, "IQ1_S", 256, 50, true},
    {QType::kIQ4_NL, "IQ4_NL", 32, 18, true},
    {QType::kIQ3_S, "IQ3_S", 256, 110, true},
    {QType::kIQ2_S, "IQ2_S", 256, 82, true},
    {QType::kIQ4_XS, "IQ4_XS", 256, 136, true},
    {QType::kI8, "I8", 1, 1, false},
    {QType::kI16, "I16", 1, 2, false},
    {QType::kI32, "I32", 1, 4, false},
    {QType::kI64, "I64", 1, 8, false},
    {QType::kF64, "F64", 1, 8, false},
    {QType::kIQ1_M, "IQ1_M", 256, 56, true},
    {QType::kBF16, "BF16", 1, 2, true},
    {QType::kTQ1_0, "TQ1_0", 256, 54, true},
    {QType::kTQ2_0, "TQ2_0", 256, 66, true},
    {QType::kMXFP4, "MXFP4", 32, 17, true},
    {QType::kNVFP4, "NVFP4", 64, 36, true},
};

constexpr std::array<int8_t, kQTypeSlots> make_index() {
  std::array<int8_t, kQTypeSlots> index{};
  index.fill(-1);
  int8_t at = 0;
  for (const QTypeInfo& info : kInfos) index[static_cast<size_t>(info.id)] = at++;
  return index;
}

constexpr std::array<int8_t, kQTypeSlots> kIndex = make_index();

}  // namespace

const QTypeInfo* qtype_info(uint32_t id) { return id < kQTypeSlots && kIndex[id] >= 0 ? &kInfos[kIndex[id]] : nullptr; }

Result<QType> qtype_from_name(std::string_view name) {
  std::string upper;
  for (const char c : name) upper += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  std::string known;
  for (const QTypeInfo& info : kInfos) {
    if (upper == info.name) return info.id;
    known += std::string(known.empty() ? "" : ", ") + info.name;
  }
  return make_error(Code::kUnsupported, "quant type '%s' is unknown; known: %s", std::string(name).c_str(),
                    known.c_str());
}

Result<uint64_t> row_bytes(QType type, uint64_t n_elements) {
  const QTypeInfo& info = qtype_info(type);
  if (n_elements % info.block_elements != 0) {
    return make_error(Code::kCorrupt, "rows of %llu weights are not whole blocks of %u, as %s has them",
                      static_cast<unsigned long long>(n_elements), info.block_elements, info.name);
  }
  uint64_t bytes = 0;
  if (!checked_mul(n_elements / info.block_elements, info.block_bytes, &bytes)) {
    return make_error(Code::kCorrupt, "rows of %llu weights overflow", static_cast<unsigned long long>(n_elements));
  }
  return bytes;
}

}  // namespace les

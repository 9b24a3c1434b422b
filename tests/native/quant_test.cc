#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "quant/codec.h"
#include "quant/half.h"
#include "quant/qtype.h"

namespace les {
namespace {

// Value of a half by its definition.
double half_by_definition(uint32_t h) {
  const double sign = (h & 0x8000) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(h >> 10 & 31);
  const double fraction = static_cast<double>(h & 1023) / 1024;
  if (exponent == 0) return sign * std::ldexp(fraction, -14);
  return sign * std::ldexp(1 + fraction, exponent - 15);
}

TEST_CASE("every half goes to float and back") {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float f = half_to_float(static_cast<uint16_t>(h));
    if ((h & 0x7c00) == 0x7c00 && (h & 0x3ff) != 0) {
      CHECK(std::isnan(f));
      CHECK(std::isnan(half_to_float(float_to_half(f))));
      continue;
    }
    if ((h & 0x7fff) == 0x7c00) {
      CHECK(std::isinf(f));
    } else if (static_cast<double>(f) != half_by_definition(h)) {
      FAIL_CHECK("half " << h << " is " << f);
    }
    if (float_to_half(f) != h) FAIL_CHECK("half " << h << " comes back as " << float_to_half(f));
  }
}

TEST_CASE("floats round to the nearest half, ties to even") {
  for (uint32_t h = 0; h < 0x7bff; ++h) {
    const float low = half_to_float(static_cast<uint16_t>(h)), high = half_to_float(static_cast<uint16_t>(h + 1));
    const float middle = low + (high - low) * 0.5f;  // exact: a float has 13 bits more
    const uint32_t even = h % 2 == 0 ? h : h + 1;
    const bool is_right = float_to_half(middle) == even && float_to_half(std::nextafter(middle, 0.0f)) == h &&
                          float_to_half(std::nextafter(middle, 1e9f)) == h + 1 &&
                          float_to_half(-middle) == (even | 0x8000);
    if (!is_right) FAIL_CHECK("between " << h << " and " << h + 1);
  }
  CHECK(float_to_half(65519.99f) == 0x7bff);
  CHECK(float_to_half(65520.0f) == 0x7c00);
  CHECK(float_to_half(std::numeric_limits<float>::max()) == 0x7c00);
  CHECK(float_to_half(-std::numeric_limits<float>::infinity()) == 0xfc00);
  CHECK(float_to_half(std::numeric_limits<float>::denorm_min()) == 0);
}

TEST_CASE("floats round to the nearest bfloat, ties to even") {
  for (uint32_t b = 0; b < 0x7f7f; ++b) {
    const float middle = std::bit_cast<float>(b << 16 | 0x8000u);
    const bool is_right = float_to_bfloat(bfloat_to_float(static_cast<uint16_t>(b))) == b &&
                          float_to_bfloat(middle) == (b % 2 == 0 ? b : b + 1) &&
                          float_to_bfloat(std::bit_cast<float>(b << 16 | 0x7fffu)) == b &&
                          float_to_bfloat(std::bit_cast<float>(b << 16 | 0x8001u)) == b + 1;
    if (!is_right) FAIL_CHECK("bfloat " << b);
  }
  CHECK(float_to_bfloat(std::numeric_limits<float>::infinity()) == 0x7f80);
  CHECK(std::isnan(bfloat_to_float(float_to_bfloat(std::bit_cast<float>(0x7f800001u)))));
}

TEST_CASE("types are found by id and by name of either case") {
  size_t n_known = 0;
  for (uint32_t id = 0; id < kQTypeSlots + 8; ++id) {
    const QTypeInfo* info = qtype_info(id);
    if (info == nullptr) continue;
    ++n_known;
    CHECK(static_cast<uint32_t>(info->id) == id);
    std::string lower = info->name;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    CHECK(*qtype_from_name(info->name) == info->id);
    CHECK(*qtype_from_name(lower) == info->id);
    CHECK((dequantizer(info->id) != nullptr) == info->is_weight);
  }
  CHECK(n_known == 33);
  const auto unknown = qtype_from_name("Q9_Z");
  REQUIRE_FALSE(unknown.is_ok());
  CHECK(unknown.status().code() == Code::kUnsupported);
  CHECK(unknown.status().message().find("Q9_Z") != std::string::npos);
}

TEST_CASE("rows are whole blocks, and their sizes do not overflow") {
  CHECK(*row_bytes(QType::kQ4_K, 512) == 288);
  CHECK(*row_bytes(QType::kMXFP4, 96) == 51);
  const auto odd = row_bytes(QType::kQ4_K, 300);
  REQUIRE_FALSE(odd.is_ok());
  CHECK(odd.status().message() == "rows of 300 weights are not whole blocks of 256, as Q4_K has them");
  CHECK_FALSE(row_bytes(QType::kF32, ~0ull).is_ok());
}

TEST_CASE("decoders write what the row holds and nothing else, from any address") {
  for (uint32_t id = 0; id < kQTypeSlots; ++id) {
    const QTypeInfo* info = qtype_info(id);
    if (info == nullptr || !info->is_weight) continue;
    const std::string name = info->name;
    CAPTURE(name);
    const int64_t n = 2 * static_cast<int64_t>(info->block_elements);
    const size_t n_bytes = 2 * info->block_bytes;
    std::vector<uint8_t> bytes(n_bytes + 1);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>((i * 37 + 11) & 0x3f);
    std::vector<float> at_odd(static_cast<size_t>(n) + 1, 12345.0f), first(at_odd);
    dequantizer(info->id)(bytes.data() + 1, n, at_odd.data());
    CHECK(at_odd.back() == 12345.0f);
    // A block does not depend on its neighbours.
    dequantizer(info->id)(bytes.data() + 1, n / 2, first.data());
    CHECK(std::memcmp(first.data(), at_odd.data(), static_cast<size_t>(n / 2) * sizeof(float)) == 0);
    CHECK(first[static_cast<size_t>(n / 2)] == 12345.0f);
  }
}

}  // namespace
}  // namespace les

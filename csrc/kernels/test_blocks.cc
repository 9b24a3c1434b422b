#include "kernels/test_blocks.h"

#include <cstring>

namespace les {

namespace {

constexpr TestType kTypes[] = {
    {QType::kQ8_0, 32, 34, {0, -1}},     {QType::kQ4_0, 32, 18, {0, -1}},     {QType::kQ4_1, 32, 20, {0, 2}},
    {QType::kQ5_0, 32, 22, {0, -1}},     {QType::kQ5_1, 32, 24, {0, 2}},      {QType::kQ2_K, 256, 84, {80, 82}},
    {QType::kQ3_K, 256, 110, {108, -1}}, {QType::kQ4_K, 256, 144, {0, 2}},    {QType::kQ5_K, 256, 176, {0, 2}},
    {QType::kQ6_K, 256, 210, {208, -1}}, {QType::kIQ4_NL, 32, 18, {0, -1}},   {QType::kIQ4_XS, 256, 136, {0, -1}},
    {QType::kMXFP4, 32, 17, {-1, -1}},   {QType::kNVFP4, 64, 36, {-1, -1}},   {QType::kTQ1_0, 256, 54, {52, -1}},
    {QType::kTQ2_0, 256, 66, {64, -1}},  {QType::kIQ2_XXS, 256, 66, {0, -1}}, {QType::kIQ2_XS, 256, 74, {0, -1}},
    {QType::kIQ2_S, 256, 82, {0, -1}},   {QType::kIQ3_XXS, 256, 98, {0, -1}}, {QType::kIQ3_S, 256, 110, {0, -1}},
    {QType::kIQ1_S, 256, 50, {0, -1}},   {QType::kIQ1_M, 256, 56, {-1, -1}},
};

// Between about 2^-9 and 2^-6, either sign.
uint16_t moderate_half(TestRandom& random) {
  const uint32_t r = random.bits();
  return static_cast<uint16_t>((r & 0x8000u) | (6u + r % 3u) << 10 | (r >> 4 & 0x3ffu));
}

}  // namespace

const TestType* test_types(size_t* count) {
  *count = sizeof(kTypes) / sizeof(kTypes[0]);
  return kTypes;
}

uint32_t TestRandom::bits() {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<uint32_t>((state ^ state >> 29) >> 17);
}

float TestRandom::uniform(float low, float high) {
  return low + (high - low) * (static_cast<float>(bits() >> 8) * 0x1p-24f);
}

void fill_test_blocks(const TestType& type, uint8_t* out, size_t n_blocks, TestRandom& random) {
  for (size_t b = 0; b < n_blocks; ++b, out += type.block_bytes) {
    for (int i = 0; i < type.block_bytes; ++i) out[i] = static_cast<uint8_t>(random.bits());
    for (const int at : type.halves) {
      if (at < 0) continue;
      const uint16_t half = moderate_half(random);
      std::memcpy(out + at, &half, sizeof(half));
    }
    if (type.type == QType::kMXFP4) out[0] = static_cast<uint8_t>(118 + random.bits() % 6);
    if (type.type == QType::kIQ1_M) {
      // The scale is spread over the upper nibbles of four 16-bit words.
      const uint16_t half = moderate_half(random);
      for (int i = 0; i < 4; ++i) {
        uint8_t* at = out + 49 + 2 * i;
        *at = static_cast<uint8_t>((*at & 0x0f) | (half >> (4 * i) & 15) << 4);
      }
    }
  }
}

}  // namespace les

// The types with code books and the ternary ones for AVX2, and the list of all types.
#pragma once

#include "kernels/unpack_avx2.h"
#include "kernels/unpack_iq_x86.h"

namespace les {
namespace {

// Eight magnitudes a point for IQ2, four for IQ3; biased by at least the largest of them.
inline B signed_magnitudes(__m256i magnitudes, uint32_t signs, int bias) {
  const __m256i negative = spread_bits(signs, 255);
  const __m256i value = _mm256_sub_epi8(_mm256_xor_si256(magnitudes, negative), negative);
  return _mm256_add_epi8(value, _mm256_set1_epi8(static_cast<char>(bias)));
}
template <int kBytes, typename Scale, Scale (*kDecode)(const uint8_t*, Points<32>&), const uint64_t* kGrid>
struct FastIQ2 : Layout<256, kBytes, Form::kBiased, 64, Mins::kNone> {
  Points<32> points;
  Scale scale;
  static inline FastIQ2 open(const uint8_t* p) {
    FastIQ2 unit;
    unit.scale = kDecode(p, unit.points);
    return unit;
  }
  inline B step(int j) const {
    return signed_magnitudes(four_points(kGrid, points.index + 4 * j), points.signs[j], 64);
  }
};

template <int kBytes, S8 (*kDecode)(const uint8_t*, Points<64>&), const uint32_t* kGrid>
struct FastIQ3 : Layout<256, kBytes, Form::kBiased, 64, Mins::kNone> {
  Points<64> points;
  S8 scale;
  static inline FastIQ3 open(const uint8_t* p) {
    FastIQ3 unit;
    unit.scale = kDecode(p, unit.points);
    return unit;
  }
  inline B step(int j) const {
    return signed_magnitudes(eight_points(kGrid, points.index + 8 * j), points.signs[j], 64);
  }
};

template <int kBytes, typename Scale, Scale (*kDecode)(const uint8_t*, ShiftedPoints<32>&)>
struct FastIQ1 : Layout<256, kBytes, Form::kBiased, kIq1Bias, Mins::kNone> {
  ShiftedPoints<32> points;
  Scale scale;
  static inline FastIQ1 open(const uint8_t* p) {
    FastIQ1 unit;
    unit.scale = kDecode(p, unit.points);
    return unit;
  }
  inline B step(int j) const {
    const __m256i shifts = _mm256_cvtepu8_epi64(
        _mm_cvtsi32_si128(static_cast<int>(load_u32(reinterpret_cast<const uint8_t*>(points.shift) + 4 * j))));
    const __m256i order = _mm256_setr_epi64x(0, 0x0808080808080808, 0, 0x0808080808080808);
    return _mm256_add_epi8(four_points(kIq1Grid.points, points.index + 4 * j), _mm256_shuffle_epi8(shifts, order));
  }
};

inline B times3(B a) { return _mm256_add_epi8(a, _mm256_add_epi8(a, a)); }
inline B times9(B a) { return times3(times3(a)); }

struct FastTQ1_0 : Layout<256, 54, Form::kBiased, 1, Mins::kNone> {
  B digits[8];
  S8 scale;
  static inline FastTQ1_0 open(const uint8_t* p) {
    // A byte times 3^n modulo 256 has digit n on top. 32 bytes give digits 0 to 4, then 16 bytes, then 4 digits of 4.
    const B a = b_load(p);
    const B b = times3(a);
    const B c = times3(b);
    const B d = times3(c);
    const B second = _mm256_broadcastsi128_si256(load_128(p + 32));
    const B f = _mm256_blend_epi32(second, times3(second), 0xf0);
    const B g = times9(f);
    const B third = _mm256_set1_epi32(static_cast<int>(load_u32(p + 48)));
    const B tripled = _mm256_blend_epi32(third, times3(third), 0xaa);
    const B h = _mm256_blend_epi32(tripled, times9(tripled), 0xcc);
    return {
        {}, {a, b, c, d, times3(d), f, g, _mm256_blend_epi32(times9(g), h, 0xf0)}, {_mm256_set1_ps(load_half(p + 52))}};
  }
  inline B step(int j) const {
    // Thirds of 256: digit 1 from 86 on, 2 from 171.
    const B above1 = _mm256_cmpeq_epi8(_mm256_max_epu8(digits[j], _mm256_set1_epi8(86)), digits[j]);
    const B above2 = _mm256_cmpeq_epi8(_mm256_max_epu8(digits[j], _mm256_set1_epi8(static_cast<char>(171))), digits[j]);
    return _mm256_sub_epi8(_mm256_setzero_si256(), _mm256_add_epi8(above1, above2));
  }
};

struct Avx2Types : PortableTypes {
  using TQ1_0 = FastTQ1_0;
  using NVFP4 = FastNVFP4;
  using IQ2_XXS = FastIQ2<66, S8, decode_iq2_xxs, kIq2XxsGrid.points>;
  using IQ2_XS = FastIQ2<74, S16, decode_iq2_xs, kIq2XsGrid.points>;
  using IQ2_S = FastIQ2<82, S16, decode_iq2_s, kIq2SGrid.points>;
  using IQ3_XXS = FastIQ3<98, decode_iq3_xxs, kIq3XxsGrid.points>;
  using IQ3_S = FastIQ3<110, decode_iq3_s, kIq3SGrid.points>;
  using IQ1_S = FastIQ1<50, S8, decode_iq1_s>;
  using IQ1_M = FastIQ1<56, S16, decode_iq1_m>;
  using Q8_0 = FastQ8_0;
  using Q4_0 = FastQ4_0;
  using Q4_1 = FastQ4_1;
  using Q5_0 = FastQ5_0;
  using Q5_1 = FastQ5_1;
  using IQ4_NL = FastIQ4_NL;
  using MXFP4 = FastMXFP4;
  using Q2_K = FastQ2_K;
  using Q3_K = FastQ3_K;
  using Q4_K = FastQ4_K;
  using Q5_K = FastQ5_K;
  using Q6_K = FastQ6_K;
  using IQ4_XS = FastIQ4_XS;
  using TQ2_0 = FastTQ2_0;
};

}  // namespace
}  // namespace les

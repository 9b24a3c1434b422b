// The types with code books and the ternary ones for AVX-512, and the list of all types.
#pragma once

#include "kernels/unpack_avx512.h"
#include "kernels/unpack_iq_x86.h"

namespace les {
namespace {

inline B signed_magnitudes(B magnitudes, const uint32_t* signs, int bias) {
  const B middle = _mm512_set1_epi8(static_cast<char>(bias));
  const __mmask64 negative = load_u64(reinterpret_cast<const uint8_t*>(signs));
  return _mm512_mask_sub_epi8(_mm512_add_epi8(middle, magnitudes), negative, middle, magnitudes);
}
inline B eight_points(const uint64_t* grid, const uint16_t* index) {
  return join_256(four_points(grid, index), four_points(grid, index + 4));
}
inline B sixteen_points(const uint32_t* grid, const uint16_t* index) {
  return join_256(eight_points(grid, index), eight_points(grid, index + 8));
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
    return signed_magnitudes(eight_points(kGrid, points.index + 8 * j), points.signs + 2 * j, 64);
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
    return signed_magnitudes(sixteen_points(kGrid, points.index + 16 * j), points.signs + 2 * j, 64);
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
    const B shifts = _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(points.shift + 8 * j)));
    const B order = _mm512_broadcast_i64x2(_mm_set_epi64x(0x0808080808080808, 0));
    return _mm512_add_epi8(eight_points(kIq1Grid.points, points.index + 8 * j), _mm512_shuffle_epi8(shifts, order));
  }
};

inline B times3(B a) { return _mm512_add_epi8(a, _mm512_add_epi8(a, a)); }
inline B times9(B a) { return times3(times3(a)); }

struct FastTQ1_0 : Layout<256, 54, Form::kBiased, 1, Mins::kNone> {
  B digits[4];
  S8 scale;
  static inline FastTQ1_0 open(const uint8_t* p) {
    // A byte times 3^n modulo 256 has digit n on top. 32 bytes give digits 0 to 4, then 16 bytes, then 4 digits of 4.
    const B first = twice_256(p);
    const B a = _mm512_mask_blend_epi64(0xf0, first, times3(first));
    const B b = times9(a);
    const B second = _mm512_broadcast_i32x4(load_128(p + 32));
    const B c = _mm512_mask_blend_epi64(0xcc, second, times3(second));
    const B d = times9(c);
    const B third = _mm512_set1_epi32(static_cast<int>(load_u32(p + 48)));
    const B tripled = _mm512_mask_blend_epi32(0xaaaa, third, times3(third));
    const B e = _mm512_mask_blend_epi32(0xcccc, tripled, times9(tripled));
    const B last = _mm512_mask_blend_epi64(0xc0, _mm512_mask_blend_epi64(0x30, d, times9(d)), e);
    return {{}, {a, b, _mm512_mask_blend_epi64(0xf0, times9(b), c), last}, {_mm256_set1_ps(load_half(p + 52))}};
  }
  inline B step(int j) const {
    // Thirds of 256: digit 1 from 86 on, 2 from 171.
    const B one = _mm512_set1_epi8(1);
    const __mmask64 above1 = _mm512_cmpge_epu8_mask(digits[j], _mm512_set1_epi8(86));
    const __mmask64 above2 = _mm512_cmpge_epu8_mask(digits[j], _mm512_set1_epi8(static_cast<char>(171)));
    const B low = _mm512_maskz_mov_epi8(above1, one);
    return _mm512_mask_add_epi8(low, above2, low, one);
  }
};

struct Avx512Types : PortableTypes {
  using TQ1_0 = FastTQ1_0;
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
  using NVFP4 = FastNVFP4;
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

// Blocks of 32 with one scale, and perhaps an offset.

#include "base/bytes.h"
#include "quant/half.h"
#include "quant/quantize_blocks.h"
#include "quant/quantize_super.h"

namespace les {

namespace {

template <typename Book>
void scale_codes(const float* x, uint16_t d, float first, uint8_t* codes) {
  const F4 inverse = splat(inverse_or_zero(half_to_float(d)));
  for (int i = 0; i < 32; i += 4) {
    const F4 q = Book::nearest(load4(x + i) * inverse) - splat(first);
    for (int l = 0; l < 4; ++l) codes[i + l] = static_cast<uint8_t>(static_cast<int>(q[l]));
  }
}

// The half that errs least among those around the best scale.
template <typename Book>
uint16_t best_half(const float* x, const float* w, float scale) {
  const uint16_t near = finite_half(scale);
  uint16_t best = near;
  float least = scale_error<Book, 32>(x, w, half_to_float(near));
  for (const int step : {-1, 1}) {
    const auto d = static_cast<uint16_t>(near + step);
    if ((d & 0x7fff) == 0 || (d & 0x7c00) == 0x7c00 || ((d ^ near) & 0x8000) != 0) continue;
    const float error = scale_error<Book, 32>(x, w, half_to_float(d));
    if (error < least) {
      least = error;
      best = d;
    }
  }
  return best;
}

void put_nibbles(const uint8_t* codes, uint8_t* out) {
  for (int i = 0; i < 16; ++i) out[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + 16] & 15) << 4);
}

void put_fifth_bits(const uint8_t* codes, uint8_t* out) {
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(codes[i] >> 4) << i;
  store_le(out, bits);
}

// d and m as stored, and the codes under them.
template <int kHigh>
void affine_block(const float* x, const float* w, float first, float last, uint8_t* out, uint8_t* codes) {
  const Affine fit = fit_affine<kHigh, 32, false>(x, w, first, last, 9);
  const uint16_t d = finite_half(fit.scale), low = finite_half(fit.low);
  store_le(out, d);
  store_le(out + 2, low);
  const F4 inverse = splat(inverse_or_zero(half_to_float(d)));
  for (int i = 0; i < 32; i += 4) {
    const F4 q = UniformBook<0, kHigh>::nearest((load4(x + i) - splat(half_to_float(low))) * inverse);
    for (int l = 0; l < 4; ++l) codes[i + l] = static_cast<uint8_t>(q[l]);
  }
}

}  // namespace

void encode_q4_0(const float* x, const float* w, uint8_t* out) {
  using Book = UniformBook<-8, 7>;
  const uint16_t d = best_half<Book>(x, w, fit_scale<Book, 32>(x, w, 0.75f, 1.15f, 13));
  uint8_t codes[32];
  scale_codes<Book>(x, d, -8, codes);
  store_le(out, d);
  put_nibbles(codes, out + 2);
}

void encode_q4_1(const float* x, const float* w, uint8_t* out) {
  uint8_t codes[32];
  affine_block<15>(x, w, 13.5f, 17.5f, out, codes);
  put_nibbles(codes, out + 4);
}

void encode_q5_0(const float* x, const float* w, uint8_t* out) {
  using Book = UniformBook<-16, 15>;
  const uint16_t d = best_half<Book>(x, w, fit_scale<Book, 32>(x, w, 0.85f, 1.1f, 13));
  uint8_t codes[32];
  scale_codes<Book>(x, d, -16, codes);
  store_le(out, d);
  put_fifth_bits(codes, out + 2);
  put_nibbles(codes, out + 6);
}

void encode_q5_1(const float* x, const float* w, uint8_t* out) {
  uint8_t codes[32];
  affine_block<31>(x, w, 29.5f, 33.5f, out, codes);
  put_fifth_bits(codes, out + 4);
  put_nibbles(codes, out + 8);
}

void encode_q8_0(const float* x, const float* w, uint8_t* out) {
  using Book = UniformBook<-127, 127>;
  const uint16_t d = best_half<Book>(x, w, fit_scale<Book, 32>(x, w, 0.985f, 1.004f, 5));
  scale_codes<Book>(x, d, 0, out + 2);
  store_le(out, d);
}

void encode_iq4_nl(const float* x, const float* w, uint8_t* out) {
  const uint16_t d = best_half<Iq4Book>(x, w, fit_scale<Iq4Book, 32>(x, w, 0.8f, 1.15f, 13));
  const float inverse = inverse_or_zero(half_to_float(d));
  uint8_t codes[32];
  for (int i = 0; i < 32; ++i) codes[i] = Iq4Book::index(x[i] * inverse);
  store_le(out, d);
  put_nibbles(codes, out + 2);
}

}  // namespace les

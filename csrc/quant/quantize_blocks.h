// Block writers, one block each: x and w hold its elements and their weights (above 0), x is finite and of sizes that
// fit a float's square; out its bytes. The mirror of codec.cc.
#pragma once

#include <cstdint>

namespace les {

void encode_q4_0(const float* x, const float* w, uint8_t* out);
void encode_q4_1(const float* x, const float* w, uint8_t* out);
void encode_q5_0(const float* x, const float* w, uint8_t* out);
void encode_q5_1(const float* x, const float* w, uint8_t* out);
void encode_q8_0(const float* x, const float* w, uint8_t* out);
void encode_q2_k(const float* x, const float* w, uint8_t* out);
void encode_q3_k(const float* x, const float* w, uint8_t* out);
void encode_q4_k(const float* x, const float* w, uint8_t* out);
void encode_q5_k(const float* x, const float* w, uint8_t* out);
void encode_q6_k(const float* x, const float* w, uint8_t* out);
void encode_iq4_nl(const float* x, const float* w, uint8_t* out);
void encode_iq4_xs(const float* x, const float* w, uint8_t* out);
void encode_iq3_s(const float* x, const float* w, uint8_t* out);
void encode_mxfp4(const float* x, const float* w, uint8_t* out);

}  // namespace les

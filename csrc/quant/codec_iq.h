// Block decoders of the code-book and ternary types; see codec.h. One block each, out holds its elements.
#pragma once

#include <cstdint>

namespace les {

void decode_iq2_xxs(const uint8_t* p, float* out);
void decode_iq2_xs(const uint8_t* p, float* out);
void decode_iq2_s(const uint8_t* p, float* out);
void decode_iq3_xxs(const uint8_t* p, float* out);
void decode_iq3_s(const uint8_t* p, float* out);
void decode_iq1_s(const uint8_t* p, float* out);
void decode_iq1_m(const uint8_t* p, float* out);
void decode_tq1_0(const uint8_t* p, float* out);
void decode_tq2_0(const uint8_t* p, float* out);
void decode_nvfp4(const uint8_t* p, float* out);

}  // namespace les

// Loops over activations and cache rows, written once for every instruction set.
#pragma once

#include <cstring>

#include "kernels/kernels.h"
#include "kernels/math_inl.h"

namespace les {
namespace {

constexpr int kQ8Bytes = 34;  // a cached block of 32: half scale, 32 signed bytes

// Calls body(i, lanes) over [0, n) in whole vectors, then once for the rest.
template <typename Body>
inline __attribute__((always_inline)) void for_lanes(int n, Body body) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, n - i);
}
inline F load_lanes(const float* p, int lanes) { return lanes == kLanes ? f_load(p) : f_load_n(p, lanes); }
inline void store_lanes(float* p, F a, int lanes) {
  if (lanes == kLanes) {
    f_store(p, a);
  } else {
    f_store_n(p, a, lanes);
  }
}

constexpr int kBlockVectors = kActBlock / kLanes;

// The largest magnitude of 32 values; NaN if one of them is not finite, so that no fault is rounded away.
inline float block_max(const F* x) {
  F largest = f_abs(x[0]);
  F faults = f_mul(x[0], f_zero());
  for (int i = 1; i < kBlockVectors; ++i) {
    largest = f_max(largest, f_abs(x[i]));
    faults = f_fma(x[i], f_zero(), faults);
  }
  return f_hmax(largest) + f_sum(faults);
}

// Rounds 32 values to bytes of the given scale; returns the sum of the bytes.
inline float round_block(const F* x, float scale, int8_t* out) {
  const F divisor = f_set(scale > 0.0f ? scale : 1.0f);
  F sum = f_zero();
  for (int i = 0; i < kBlockVectors; ++i) {
    const F rounded = f_round(f_div(x[i], divisor));
    const F q = f_max(f_min(rounded, f_set(127.0f)), f_set(-127.0f));
    f_store_i8(out + i * kLanes, q);
    sum = f_add(sum, q);
  }
  return f_sum(sum);
}

void quantize_activations(const float* x, int n, int8_t* q8, float* scale, float* sum) {
  for (int b = 0; b < n / kActBlock; ++b, x += kActBlock, q8 += kActBlock) {
    F block[kBlockVectors];
    for (int i = 0; i < kBlockVectors; ++i) block[i] = f_load(x + i * kLanes);
    scale[b] = block_max(block) / 127.0f;
    sum[b] = scale[b] * round_block(block, scale[b], q8);
  }
}

void store_kv(const float* x, int n, KvType type, uint8_t* out) {
  if (type == KvType::kF32) {
    std::memcpy(out, x, sizeof(float) * static_cast<size_t>(n));
  } else if (type == KvType::kF16) {
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) f_store_f16(out + 2 * i, f_load(x + i));
    for (; i < n; ++i) {
      const uint16_t half = float_to_half(x[i]);
      std::memcpy(out + 2 * i, &half, sizeof(half));
    }
  } else {
    for (int b = 0; b < n / kActBlock; ++b, x += kActBlock, out += kQ8Bytes) {
      F block[kBlockVectors];
      for (int i = 0; i < kBlockVectors; ++i) block[i] = f_load(x + i * kLanes);
      // Rounded first, so that the bytes fit the scale that is kept.
      const uint16_t half = float_to_half(block_max(block) / 127.0f);
      std::memcpy(out, &half, sizeof(half));
      round_block(block, half_to_float(half), reinterpret_cast<int8_t*>(out + 2));
    }
  }
}

// kLanes values of a cache row from i on; i is a multiple of kLanes.
template <KvType kType>
inline F kv_lanes(const uint8_t* row, int i) {
  if constexpr (kType == KvType::kF32) return f_load(reinterpret_cast<const float*>(row) + i);
  if constexpr (kType == KvType::kF16) return f_load_f16(row + 2 * i);
  if constexpr (kType == KvType::kQ8_0) {
    const uint8_t* block = row + i / kActBlock * kQ8Bytes;
    uint16_t half;
    std::memcpy(&half, block, sizeof(half));
    return f_mul(f_load_i8(reinterpret_cast<const int8_t*>(block + 2) + i % kActBlock), f_set(half_to_float(half)));
  }
}

// The last n < kLanes values of a row, then zeros. Q8_0 rows are whole blocks and have none.
template <KvType kType>
inline F kv_lanes_n(const uint8_t* row, int i, int n) {
  if constexpr (kType == KvType::kF32) return f_load_n(reinterpret_cast<const float*>(row) + i, n);
  if constexpr (kType == KvType::kF16) {
    alignas(64) uint8_t padded[2 * kLanes] = {};
    std::memcpy(padded, row + 2 * i, 2 * static_cast<size_t>(n));
    return f_load_f16(padded);
  }
  return f_zero();
}

template <KvType kType>
inline void load_kv_of(const uint8_t* in, int n, float* x) {
  for_lanes(n, [&](int i, int lanes) {
    store_lanes(x + i, lanes == kLanes ? kv_lanes<kType>(in, i) : kv_lanes_n<kType>(in, i, lanes), lanes);
  });
}

void load_kv(const uint8_t* in, int n, KvType type, float* x) {
  if (type == KvType::kF32) load_kv_of<KvType::kF32>(in, n, x);
  if (type == KvType::kF16) load_kv_of<KvType::kF16>(in, n, x);
  if (type == KvType::kQ8_0) load_kv_of<KvType::kQ8_0>(in, n, x);
}

float dot(const float* a, const float* b, int n) {
  F sum[2] = {f_zero(), f_zero()};
  int i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    sum[0] = f_fma(f_load(a + i), f_load(b + i), sum[0]);
    sum[1] = f_fma(f_load(a + i + kLanes), f_load(b + i + kLanes), sum[1]);
  }
  for_lanes(n - i, [&](int j, int lanes) {
    sum[0] = f_fma(load_lanes(a + i + j, lanes), load_lanes(b + i + j, lanes), sum[0]);
  });
  return f_sum(f_add(sum[0], sum[1]));
}

void rms_norm(const float* x, const float* w, int n, float eps, float* y) {
  const float mean = dot(x, x, n) / static_cast<float>(n);
  const F scale = f_set(1.0f / __builtin_sqrtf(mean + eps));
  for_lanes(n, [&](int i, int lanes) {
    F value = f_mul(load_lanes(x + i, lanes), scale);
    if (w != nullptr) value = f_mul(value, load_lanes(w + i, lanes));
    store_lanes(y + i, value, lanes);
  });
}

void add(const float* x, int n, float* y) {
  for_lanes(n, [&](int i, int lanes) {
    store_lanes(y + i, f_add(load_lanes(y + i, lanes), load_lanes(x + i, lanes)), lanes);
  });
}

void add_scaled(const float* x, float a, int n, float* y) {
  const F factor = f_set(a);
  for_lanes(n, [&](int i, int lanes) {
    store_lanes(y + i, f_fma(factor, load_lanes(x + i, lanes), load_lanes(y + i, lanes)), lanes);
  });
}

inline float max_of(const float* x, int n) {
  F largest = f_set(x[0]);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) largest = f_max(largest, f_load(x + i));
  float result = f_hmax(largest);
  for (; i < n; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

// x = e^(x - shift); returns the sum.
inline float exp_and_sum(float* x, int n, float shift) {
  F sum = f_zero();
  float rest = 0.0f;
  for_lanes(n, [&](int i, int lanes) {
    const F e = f_exp(f_sub(load_lanes(x + i, lanes), f_set(shift)));
    store_lanes(x + i, e, lanes);
    if (lanes == kLanes) {
      sum = f_add(sum, e);
    } else {
      for (int j = 0; j < lanes; ++j) rest += x[i + j];
    }
  });
  return f_sum(sum) + rest;
}

void softmax(float* x, int n) {
  if (n <= 0) return;
  const float sum = exp_and_sum(x, n, max_of(x, n));
  const F factor = f_set(1.0f / sum);
  for_lanes(n, [&](int i, int lanes) { store_lanes(x + i, f_mul(load_lanes(x + i, lanes), factor), lanes); });
}

}  // namespace
}  // namespace les

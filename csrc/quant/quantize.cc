#include "quant/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "quant/half.h"
#include "quant/quantize_blocks.h"

namespace les {

namespace {

using EncodeFn = void (*)(const float* x, const float* w, uint8_t* out);

EncodeFn encoder(QType type) {
  switch (type) {
    case QType::kQ4_0: return encode_q4_0;
    case QType::kQ4_1: return encode_q4_1;
    case QType::kQ5_0: return encode_q5_0;
    case QType::kQ5_1: return encode_q5_1;
    case QType::kQ8_0: return encode_q8_0;
    case QType::kQ2_K: return encode_q2_k;
    case QType::kQ3_K: return encode_q3_k;
    case QType::kQ4_K: return encode_q4_k;
    case QType::kQ5_K: return encode_q5_k;
    case QType::kQ6_K: return encode_q6_k;
    case QType::kIQ4_NL: return encode_iq4_nl;
    case QType::kIQ4_XS: return encode_iq4_xs;
    case QType::kIQ3_S: return encode_iq3_s;
    case QType::kMXFP4: return encode_mxfp4;
    default: return nullptr;
  }
}

bool is_plain(QType type) { return type == QType::kF32 || type == QType::kF16 || type == QType::kBF16; }

void store_plain(QType type, const float* x, uint64_t n, uint8_t* out) {
  if (type == QType::kF32) {
    std::memcpy(out, x, n * sizeof(float));
    return;
  }
  for (uint64_t i = 0; i < n; ++i)
    store_le(out + 2 * i, type == QType::kF16 ? float_to_half(x[i]) : float_to_bfloat(x[i]));
}

// What the searches can square and divide without leaving the range of floats.
float tame(float v) {
  constexpr float kLargest = 0x1p30f, kSmallest = 0x1p-40f;
  const float magnitude = std::fabs(v);
  if (!(magnitude >= kSmallest)) return 0;  // NaN as well
  return std::copysign(std::min(magnitude, kLargest), v);
}

// Weights from 1e-6 to 1; all 1 without importance, or when all of it is 0.
Status make_weights(const float* importance, size_t n, std::vector<float>* weights) {
  weights->assign(n, 1.0f);
  if (importance == nullptr) return Status::ok();
  float peak = 0;
  for (size_t i = 0; i < n; ++i) {
    if (!(importance[i] >= 0) || !std::isfinite(importance[i])) {
      return make_error(Code::kInvalidArgument, "importance of column %zu is %g; it must be finite and not negative", i,
                        static_cast<double>(importance[i]));
    }
    peak = std::max(peak, importance[i]);
  }
  if (peak == 0) return Status::ok();
  for (size_t i = 0; i < n; ++i) {
    (*weights)[i] = std::max(static_cast<float>(static_cast<double>(importance[i]) / static_cast<double>(peak)), 1e-6f);
  }
  return Status::ok();
}

}  // namespace

bool can_quantize(QType type) { return is_plain(type) || encoder(type) != nullptr; }

Status quantize_rows(QType type, const float* x, int64_t n_rows, int64_t n_in, const float* importance, uint8_t* out) {
  const QTypeInfo& info = qtype_info(type);
  if (!can_quantize(type)) return make_error(Code::kUnsupported, "%s can be read but not written", info.name);
  if (n_rows < 0 || n_in < 0) {
    return make_error(Code::kInvalidArgument, "a matrix has no %lld x %lld weights", static_cast<long long>(n_rows),
                      static_cast<long long>(n_in));
  }
  const auto n = static_cast<size_t>(n_in);
  const auto row = row_bytes(type, n);
  if (!row.is_ok()) return Status(Code::kInvalidArgument, row.status().message());
  std::vector<float> weights;
  LES_RETURN_IF_ERROR(make_weights(importance, n, &weights));
  const EncodeFn encode = encoder(type);
  for (int64_t r = 0; r < n_rows; ++r, x += n, out += *row) {
    if (encode == nullptr) {
      store_plain(type, x, n, out);
      continue;
    }
    uint8_t* at = out;
    float block[256];
    for (size_t i = 0; i < n; i += info.block_elements, at += info.block_bytes) {
      std::transform(x + i, x + i + info.block_elements, block, tame);
      encode(block, weights.data() + i, at);
    }
  }
  return Status::ok();
}

}  // namespace les

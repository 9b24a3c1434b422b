#include "quant/quantize.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "quant/codec.h"
#include "quant/qtype.h"

namespace les {
namespace {

constexpr QType kWritten[] = {QType::kF32,  QType::kF16,    QType::kBF16,   QType::kQ8_0,  QType::kQ4_0, QType::kQ4_1,
                              QType::kQ5_0, QType::kQ5_1,   QType::kQ2_K,   QType::kQ3_K,  QType::kQ4_K, QType::kQ5_K,
                              QType::kQ6_K, QType::kIQ4_NL, QType::kIQ4_XS, QType::kIQ3_S, QType::kMXFP4};

// Roughly normal weights, with the same bits everywhere.
std::vector<float> weights_of(size_t n, float scale, uint64_t seed) {
  std::vector<float> x(n);
  for (float& v : x) {
    int64_t sum = 0;
    for (int k = 0; k < 4; ++k) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<int64_t>(seed >> 40) - (1 << 23);
    }
    v = static_cast<float>(sum) * 0x1p-23f * scale;
  }
  return x;
}

std::vector<uint8_t> written(QType type, const std::vector<float>& x, int64_t n_in, const float* importance = nullptr) {
  const int64_t n_rows = static_cast<int64_t>(x.size()) / n_in;
  const uint64_t row = *row_bytes(type, static_cast<uint64_t>(n_in));
  std::vector<uint8_t> out(static_cast<size_t>(n_rows) * row + 1, 0xa5);
  const Status status = quantize_rows(type, x.data(), n_rows, n_in, importance, out.data());
  CHECK(status.is_ok());
  CHECK(out.back() == 0xa5);
  out.pop_back();
  return out;
}

std::vector<float> read_back(QType type, const std::vector<uint8_t>& bytes, size_t n) {
  std::vector<float> y(n);
  dequantizer(type)(bytes.data(), static_cast<int64_t>(n), y.data());
  return y;
}

double relative_error(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0, total = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
    total += std::pow(static_cast<double>(x[i]), 2);
  }
  return std::sqrt(error / total);
}

double round_trip_error(QType type, const std::vector<float>& x) {
  return relative_error(x, read_back(type, written(type, x, 256), x.size()));
}

TEST_CASE("errors are as small as each type allows, at every scale that halves can hold") {
  constexpr struct {
    QType type;
    double most;
  } kBounds[] = {{QType::kF32, 0},        {QType::kF16, 3e-4},    {QType::kBF16, 2e-3},  {QType::kQ8_0, 0.0055},
                 {QType::kQ6_K, 0.018},   {QType::kQ5_K, 0.037},  {QType::kQ5_1, 0.037}, {QType::kQ5_0, 0.043},
                 {QType::kQ4_K, 0.073},   {QType::kQ4_1, 0.075},  {QType::kQ4_0, 0.086}, {QType::kIQ4_NL, 0.077},
                 {QType::kIQ4_XS, 0.078}, {QType::kMXFP4, 0.125}, {QType::kQ3_K, 0.155}, {QType::kIQ3_S, 0.14},
                 {QType::kQ2_K, 0.28}};
  CHECK(std::size(kBounds) == std::size(kWritten));
  for (const float scale : {0.02f, 1.0f, 3000.0f}) {
    const std::vector<float> x = weights_of(4096, scale, 7);
    for (const auto& bound : kBounds) {
      const std::string name = qtype_info(bound.type).name;
      CAPTURE(name);
      CAPTURE(scale);
      CHECK(can_quantize(bound.type));
      CHECK(round_trip_error(bound.type, x) <= bound.most);
    }
  }
}

// A change of these means that files packed from now on differ from those packed before.
TEST_CASE("the bytes are the same on every processor") {
  constexpr struct {
    QType type;
    uint64_t plain, weighted;
  } kDigests[] = {
      {QType::kF32, 0x050197ed4f745e04, 0x050197ed4f745e04},
      {QType::kF16, 0xe4dad9bd829896ac, 0xe4dad9bd829896ac},
      {QType::kBF16, 0xdd264fce447f11c7, 0xdd264fce447f11c7},
      {QType::kQ8_0, 0x5f6905632139bb6c, 0x3bf77cea8f213986},
      {QType::kQ4_0, 0x58713c6d1fdf1e25, 0x373b91fe3ba2d497},
      {QType::kQ4_1, 0xf650e0d6a0303f93, 0x5568dcc707782fea},
      {QType::kQ5_0, 0xdfdb1025158364de, 0xfc056b47b751467d},
      {QType::kQ5_1, 0x4d9c3d421bbe465f, 0x05c1db622654cafa},
      {QType::kQ2_K, 0x7f9ae187ae2a2045, 0x1f94be41dde6d373},
      {QType::kQ3_K, 0xb5773aa99627dd9b, 0x8834acb43b9c8c43},
      {QType::kQ4_K, 0x15f1fb4d70add49c, 0x3ccc1b31a0643222},
      {QType::kQ5_K, 0xf95b6eba9a4d4a38, 0x3051247c08bb274b},
      {QType::kQ6_K, 0x0fdddd29cd72dec9, 0xd6a22ed745786169},
      {QType::kIQ4_NL, 0x49cfedc7ba4bda8f, 0x66be331f6302df05},
      {QType::kIQ4_XS, 0x0b68712fed34fa8e, 0xc81e753755b1c483},
      {QType::kIQ3_S, 0x48b53cba01da417a, 0x56fe1931a6cf4f4a},
      {QType::kMXFP4, 0x11c3911d0fdc727a, 0x9e0f3655af9be745},
  };
  const std::vector<float> x = weights_of(4096, 0.03f, 99);
  std::vector<float> importance = weights_of(512, 1.0f, 5);
  for (float& v : importance) v = v * v;
  for (const auto& expected : kDigests) {
    const auto plain = written(expected.type, x, 512), weighted = written(expected.type, x, 512, importance.data());
    const std::string name = qtype_info(expected.type).name;
    CAPTURE(name);
    CHECK(xxh3_64(plain.data(), plain.size()) == expected.plain);
    CHECK(xxh3_64(weighted.data(), weighted.size()) == expected.weighted);
  }
}

TEST_CASE("importance lowers the error that it weighs") {
  const std::vector<float> x = weights_of(16384, 0.02f, 3);
  std::vector<float> importance = weights_of(256, 1.0f, 4);
  for (float& v : importance) v = v * v * v * v;
  const auto weighted_error = [&](const std::vector<float>& y) {
    double error = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      error +=
          static_cast<double>(importance[i % 256]) * std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
    }
    return error;
  };
  for (const QType type : kWritten) {
    if (type == QType::kF32 || type == QType::kF16 || type == QType::kBF16) continue;
    const std::string name = qtype_info(type).name;
    CAPTURE(name);
    const double plain = weighted_error(read_back(type, written(type, x, 256), x.size()));
    const double weighted = weighted_error(read_back(type, written(type, x, 256, importance.data()), x.size()));
    CHECK(weighted < plain);
  }
}

TEST_CASE("importance counts by ratio, and none at all counts as equal") {
  const std::vector<float> x = weights_of(1024, 0.02f, 8);
  std::vector<float> importance = weights_of(256, 1.0f, 9), larger(256), zeros(256, 0.0f), equal(256, 3e30f);
  for (size_t i = 0; i < 256; ++i) {
    importance[i] = importance[i] * importance[i];
    larger[i] = importance[i] * 0x1p100f;
  }
  for (const QType type : kWritten) {
    const std::string name = qtype_info(type).name;
    CAPTURE(name);
    CHECK(written(type, x, 256, importance.data()) == written(type, x, 256, larger.data()));
    CHECK(written(type, x, 256) == written(type, x, 256, zeros.data()));
    CHECK(written(type, x, 256) == written(type, x, 256, equal.data()));
  }
}

TEST_CASE("zeros, constants and rows of one value") {
  for (const QType type : kWritten) {
    const std::string name = qtype_info(type).name;
    CAPTURE(name);
    for (const float v : read_back(type, written(type, std::vector<float>(256, 0.0f), 256), 256)) CHECK(v == 0);
    for (const float constant : {1.0f, -1.0f, 0.37f, -0.37f}) {
      CAPTURE(constant);
      CHECK(round_trip_error(type, std::vector<float>(256, constant)) < 0.16);
    }
    std::vector<float> one(256, 0.0f);
    one[77] = -0.5f;
    // IQ3_S has no zero, so a lone weight costs what the others gain.
    CHECK(round_trip_error(type, one) < (type == QType::kIQ3_S ? 0.4 : 0.12));
  }
}

TEST_CASE("no input makes a block that decodes to NaN or infinity") {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kMax = std::numeric_limits<float>::max();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> kinds = {{nan},
                                                 {kInf},
                                                 {-kInf},
                                                 {kMax},
                                                 {-kMax},
                                                 {kInf, -kInf, nan},
                                                 {1e-39f, -1e-44f},
                                                 {kMax, 1e-44f},
                                                 {70000.0f, -1e6f},
                                                 {1e9f, 1.0f},
                                                 {6e-8f, -3e-8f},
                                                 {0.0f, -0.0f}};
  for (const QType type : kWritten) {
    if (type == QType::kF32 || type == QType::kF16 || type == QType::kBF16) continue;
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      for (const size_t step : {1, 3, 64}) {
        std::vector<float> x = weights_of(512, 0.02f, kind);
        for (size_t i = 0; i < x.size(); i += step) x[i] = kinds[kind][i / step % kinds[kind].size()];
        for (const float v : read_back(type, written(type, x, 512), x.size())) {
          if (!std::isfinite(v))
            FAIL_CHECK(qtype_info(type).name << ", kind " << kind << ", step " << step << ": " << v);
        }
      }
    }
  }
}

TEST_CASE("NaN becomes zero in blocks and stays in plain floats") {
  std::vector<float> x(256, 1.0f);
  x[5] = std::numeric_limits<float>::quiet_NaN();
  x[9] = 1e6f;
  CHECK(read_back(QType::kQ8_0, written(QType::kQ8_0, x, 256), 256)[5] == 0);
  for (const QType type : {QType::kF32, QType::kF16, QType::kBF16})
    CHECK(std::isnan(read_back(type, written(type, x, 256), 256)[5]));
  CHECK(std::isinf(read_back(QType::kF16, written(QType::kF16, x, 256), 256)[9]));
}

TEST_CASE("MXFP4 keeps what it can hold exactly") {
  std::vector<float> x(64);
  constexpr float kValues[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = (i % 3 == 1 ? -1.0f : 1.0f) * kValues[i % 8] * (i < 32 ? 0x1p-20f : 0x1p9f);
  CHECK(read_back(QType::kMXFP4, written(QType::kMXFP4, x, 64), 64) == x);
}

TEST_CASE("what cannot be written is refused") {
  const std::vector<float> x(256, 1.0f);
  std::vector<uint8_t> out(1024);
  const auto refusal = [&](QType type, int64_t n_in, const float* importance) {
    const Status status = quantize_rows(type, x.data(), 1, n_in, importance, out.data());
    return std::string(code_name(status.code())) + ": " + status.message();
  };
  CHECK(refusal(QType::kIQ2_XS, 256, nullptr) ==
        std::string(code_name(Code::kUnsupported)) + ": IQ2_XS can be read but not written");
  CHECK(refusal(QType::kI32, 256, nullptr) ==
        std::string(code_name(Code::kUnsupported)) + ": I32 can be read but not written");
  CHECK(refusal(QType::kQ4_K, 128, nullptr) ==
        std::string(code_name(Code::kInvalidArgument)) +
            ": rows of 128 weights are not whole blocks of 256, as Q4_K has them");
  std::vector<float> importance(256, 1.0f);
  importance[3] = -2;
  CHECK(refusal(QType::kQ4_K, 256, importance.data()) ==
        std::string(code_name(Code::kInvalidArgument)) +
            ": importance of column 3 is -2; it must be finite and not negative");
  importance[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK(refusal(QType::kQ4_K, 256, importance.data()).find("column 3 is nan") != std::string::npos);
}

}  // namespace
}  // namespace les

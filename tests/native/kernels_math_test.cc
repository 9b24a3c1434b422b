// Everything but the products, against the same formulas in double.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/kernels.h"
#include "kernels_util.h"

using namespace les;

namespace {

template <typename Body>
void for_tables(Body body) {
  for (const KernelTable* table : usable_tables()) {
    const std::string isa = table->isa;
    CAPTURE(isa);
    body(*table);
  }
}

double activation(Act act, double x) {
  switch (act) {
    case Act::kSilu: return x / (1.0 + std::exp(-x));
    case Act::kGelu: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Act::kGeluTanh: return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case Act::kRelu: return std::max(x, 0.0);
    case Act::kReluSquared: return x > 0.0 ? x * x : 0.0;
    case Act::kSwigluOai: return std::min(x, 7.0) / (1.0 + std::exp(-1.702 * std::min(x, 7.0)));
  }
  return 0.0;
}

std::vector<float> random_floats(size_t n, float low, float high, TestRandom& random) {
  std::vector<float> values(n);
  for (float& value : values) value = random.uniform(low, high);
  return values;
}

}  // namespace

TEST_CASE("activations are accurate to a few units in the last place") {
  for_tables([](const KernelTable& table) {
    std::vector<float> x;
    for (float v = -30.0f; v < 30.0f; v += 0.0037f) x.push_back(v);
    for (float v = 1e-6f; v < 1.0f; v *= 1.07f) x.insert(x.end(), {v, -v});
    std::vector<float> y(x.size());
    for (const Act act : {Act::kSilu, Act::kGelu, Act::kGeluTanh, Act::kRelu, Act::kReluSquared, Act::kSwigluOai}) {
      table.glu(act, x.data(), nullptr, static_cast<int>(x.size()), y.data());
      double worst = 0.0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double v = static_cast<double>(x[i]);
        const double want = activation(act, v);
        // Far on the negative side a relative error has no meaning: the result is zero beside anything.
        const double size = std::max(std::fabs(want), 1e-6 * std::fabs(v));
        if (size > 0.0) worst = std::max(worst, std::fabs(static_cast<double>(y[i]) - want) / size);
      }
      CAPTURE(static_cast<int>(act));
      CHECK(worst < 8e-6);
      double near = 0.0;
      for (size_t i = 0; i < x.size(); ++i) {
        if (std::fabs(x[i]) > 2.0f) continue;
        const double want = activation(act, static_cast<double>(x[i]));
        if (want != 0.0) near = std::max(near, std::fabs(static_cast<double>(y[i]) - want) / std::fabs(want));
      }
      CHECK(near < 1e-6);
    }
  });
}

TEST_CASE("glu multiplies by up, works in place and takes any length") {
  for_tables([](const KernelTable& table) {
    TestRandom random = {3};
    for (int n = 1; n < 70; ++n) {
      for (const Act act : {Act::kSilu, Act::kGelu, Act::kSwigluOai}) {
        const std::vector<float> gate = random_floats(static_cast<size_t>(n), -9.0f, 9.0f, random);
        const std::vector<float> up = random_floats(static_cast<size_t>(n), -9.0f, 9.0f, random);
        Guarded y(static_cast<size_t>(n) * sizeof(float));
        std::copy(gate.begin(), gate.end(), y.as<float>());
        table.glu(act, y.as<float>(), up.data(), n, y.as<float>());
        CHECK(y.is_intact());
        for (int i = 0; i < n; ++i) {
          const size_t at = static_cast<size_t>(i);
          double factor = static_cast<double>(up[at]);
          if (act == Act::kSwigluOai) factor = std::clamp(factor, -7.0, 7.0) + 1.0;
          const double want = activation(act, static_cast<double>(gate[at])) * factor;
          CHECK(static_cast<double>(y.as<float>()[at]) == doctest::Approx(want).epsilon(3e-6));
        }
      }
    }
  });
}

TEST_CASE("extreme and faulty inputs stay what they are") {
  for_tables([](const KernelTable& table) {
    const float inf = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float x[] = {-inf, -1000.0f, -100.0f, 1000.0f, inf, nan};
    float y[6];
    table.glu(Act::kSilu, x, nullptr, 6, y);
    CHECK(std::fabs(y[1]) < 1e-30f);
    CHECK(std::fabs(y[2]) < 1e-30f);
    CHECK(y[3] == 1000.0f);
    CHECK(y[4] == inf);
    CHECK(std::isnan(y[5]));

    float values[kActBlock] = {1.0f, nan};
    int8_t q8[kActBlock];
    float scale = 0.0f;
    float sum = 0.0f;
    table.quantize_activations(values, kActBlock, q8, &scale, &sum);
    CHECK(std::isnan(scale));
    std::fill(values, values + kActBlock, 0.0f);
    table.quantize_activations(values, kActBlock, q8, &scale, &sum);
    CHECK(scale == 0.0f);
    CHECK(sum == 0.0f);
    CHECK(std::count(q8, q8 + kActBlock, 0) == kActBlock);
  });
}

TEST_CASE("activations are quantised to the nearest even multiple of a 127th of the largest") {
  for_tables([](const KernelTable& table) {
    TestRandom random = {5};
    constexpr int kBlocks = 33;
    Guarded x(kBlocks * kActBlock * sizeof(float));
    for (int i = 0; i < kBlocks * kActBlock; ++i)
      x.as<float>()[i] = random.uniform(-2.0f, 2.0f) * (i % 64 < 32 ? 1.0f : 1e-3f);
    Guarded q8(kBlocks * kActBlock);
    Guarded scale(kBlocks * sizeof(float));
    Guarded sum(kBlocks * sizeof(float));
    table.quantize_activations(x.as<float>(), kBlocks * kActBlock, q8.as<int8_t>(), scale.as<float>(), sum.as<float>());
    CHECK((q8.is_intact() && scale.is_intact() && sum.is_intact()));
    for (int b = 0; b < kBlocks; ++b) {
      float largest = 0.0f;
      int total = 0;
      for (int i = 0; i < kActBlock; ++i) largest = std::max(largest, std::fabs(x.as<float>()[b * kActBlock + i]));
      CHECK(scale.as<float>()[b] == largest / 127.0f);
      for (int i = 0; i < kActBlock; ++i) {
        const int at = b * kActBlock + i;
        CHECK(q8.as<int8_t>()[at] == static_cast<int>(std::nearbyint(x.as<float>()[at] / scale.as<float>()[b])));
        total += q8.as<int8_t>()[at];
      }
      CHECK(sum.as<float>()[b] == scale.as<float>()[b] * static_cast<float>(total));
    }
  });
}

TEST_CASE("cache rows keep their values within the precision of their type") {
  for_tables([](const KernelTable& table) {
    TestRandom random = {6};
    for (const int n : {32, 64, 160}) {
      const std::vector<float> x = random_floats(static_cast<size_t>(n), -3.0f, 3.0f, random);
      for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8_0}) {
        const size_t bytes = type == KvType::kF32   ? 4 * x.size()
                             : type == KvType::kF16 ? 2 * x.size()
                                                    : x.size() / 32 * 34;
        Guarded row(bytes);
        Guarded back(x.size() * sizeof(float));
        table.store_kv(x.data(), n, type, row.as());
        table.load_kv(row.as(), n, type, back.as<float>());
        CHECK((row.is_intact() && back.is_intact()));
        std::vector<uint8_t> scalar(bytes);
        kernels_named("scalar")->store_kv(x.data(), n, type, scalar.data());
        CHECK(std::memcmp(scalar.data(), row.as(), bytes) == 0);
        const float bound = type == KvType::kF32 ? 0.0f : type == KvType::kF16 ? 0.002f : 0.0125f;
        for (size_t i = 0; i < x.size(); ++i) CHECK(std::fabs(back.as<float>()[i] - x[i]) <= bound);
      }
    }
  });
}

TEST_CASE("halves are rounded to nearest even over their whole range") {
  const KernelTable& scalar = *kernels_named("scalar");
  for_tables([&](const KernelTable& table) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const uint16_t half = static_cast<uint16_t>(bits);
      float a = 0.0f;
      float b = 0.0f;
      scalar.load_kv(reinterpret_cast<const uint8_t*>(&half), 1, KvType::kF16, &a);
      table.load_kv(reinterpret_cast<const uint8_t*>(&half), 1, KvType::kF16, &b);
      REQUIRE(std::memcmp(&a, &b, sizeof(a)) == 0);
    }
    TestRandom random = {8};
    for (int i = 0; i < 200000; ++i) {
      const uint32_t bits = random.bits() << 16 ^ random.bits();
      float x;
      std::memcpy(&x, &bits, sizeof(x));
      if (i % 2 == 0)
        x = std::ldexp(1.0f + static_cast<float>(bits & 0xfff) / 4096.0f, static_cast<int>(bits >> 12 & 63) - 40);
      uint16_t a = 0;
      uint16_t b = 0;
      scalar.store_kv(&x, 1, KvType::kF16, reinterpret_cast<uint8_t*>(&a));
      table.store_kv(&x, 1, KvType::kF16, reinterpret_cast<uint8_t*>(&b));
      REQUIRE(a == b);
    }
  });
}

TEST_CASE("norm, softmax, sums and dot agree with double for every length") {
  for_tables([](const KernelTable& table) {
    TestRandom random = {9};
    for (const int n : {1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 100, 2048}) {
      const size_t size = static_cast<size_t>(n);
      const std::vector<float> x = random_floats(size, -4.0f, 4.0f, random);
      const std::vector<float> w = random_floats(size, 0.5f, 1.5f, random);
      Guarded y(size * sizeof(float));
      float* out = y.as<float>();
      double square = 0.0;
      double product = 0.0;
      double total = 0.0;
      for (size_t i = 0; i < size; ++i) {
        square += static_cast<double>(x[i]) * static_cast<double>(x[i]);
        product += static_cast<double>(x[i]) * static_cast<double>(w[i]);
        total += std::exp(static_cast<double>(x[i]));
      }
      const double norm = 1.0 / std::sqrt(square / n + 1e-5);
      CAPTURE(n);
      table.rms_norm(x.data(), w.data(), n, 1e-5f, out);
      for (size_t i = 0; i < size; ++i) {
        CHECK(static_cast<double>(out[i]) ==
              doctest::Approx(static_cast<double>(x[i]) * norm * static_cast<double>(w[i])).epsilon(1e-6));
      }
      table.rms_norm(x.data(), nullptr, n, 1e-5f, out);
      CHECK(static_cast<double>(out[size - 1]) ==
            doctest::Approx(static_cast<double>(x[size - 1]) * norm).epsilon(1e-6));
      std::copy(x.begin(), x.end(), out);
      table.softmax(out, n);
      for (size_t i = 0; i < size; ++i) {
        CHECK(static_cast<double>(out[i]) ==
              doctest::Approx(std::exp(static_cast<double>(x[i])) / total).epsilon(2e-6));
      }
      std::copy(x.begin(), x.end(), out);
      table.add(w.data(), n, out);
      for (size_t i = 0; i < size; ++i) CHECK(out[i] == x[i] + w[i]);
      std::copy(x.begin(), x.end(), out);
      table.add_scaled(w.data(), -0.75f, n, out);
      for (size_t i = 0; i < size; ++i) CHECK(out[i] == doctest::Approx(x[i] - 0.75f * w[i]).epsilon(1e-5));
      CHECK(static_cast<double>(table.dot(x.data(), w.data(), n)) == doctest::Approx(product).epsilon(1e-5));
      CHECK(y.is_intact());
    }
  });
}

TEST_CASE("attention agrees with double for every cache type, head count and dimension") {
  for_tables([](const KernelTable& table) {
    TestRandom random = {10};
    for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8_0}) {
      for (const auto& [n_heads, dim_k, dim_v, begin, end] :
           {std::array{1, 32, 32, 0, 1}, std::array{4, 64, 64, 0, 17}, std::array{7, 96, 128, 5, 70},
            std::array{8, 192, 160, 1, 33}, std::array{3, 40, 20, 0, 9}}) {
        if (type == KvType::kQ8_0 && dim_k % 32 != 0) continue;
        for (const bool has_sinks : {false, true}) {
          const float softcap = has_sinks ? 5.0f : 0.0f;
          const size_t k_values = static_cast<size_t>(end * dim_k);
          const std::vector<float> q = random_floats(static_cast<size_t>(n_heads * dim_k), -2.0f, 2.0f, random);
          const std::vector<float> k = random_floats(k_values, -2.0f, 2.0f, random);
          const std::vector<float> v = random_floats(static_cast<size_t>(end * dim_v), -2.0f, 2.0f, random);
          const std::vector<float> sinks = random_floats(static_cast<size_t>(n_heads), -1.0f, 3.0f, random);
          const auto bytes_of = [&](int dim) {
            return static_cast<size_t>(type == KvType::kF32 ? 4 * dim : type == KvType::kF16 ? 2 * dim : dim / 32 * 34);
          };
          Guarded k_cache(bytes_of(dim_k) * static_cast<size_t>(end));
          Guarded v_cache(bytes_of(dim_v) * static_cast<size_t>(end));
          std::vector<float> k_back(k.size());
          std::vector<float> v_back(v.size());
          for (int p = 0; p < end; ++p) {
            uint8_t* k_row = k_cache.as() + bytes_of(dim_k) * static_cast<size_t>(p);
            uint8_t* v_row = v_cache.as() + bytes_of(dim_v) * static_cast<size_t>(p);
            table.store_kv(k.data() + p * dim_k, dim_k, type, k_row);
            table.store_kv(v.data() + p * dim_v, dim_v, type, v_row);
            table.load_kv(k_row, dim_k, type, k_back.data() + p * dim_k);
            table.load_kv(v_row, dim_v, type, v_back.data() + p * dim_v);
          }
          const int n = end - begin;
          Guarded scores(static_cast<size_t>(n_heads * n) * sizeof(float));
          Guarded out(static_cast<size_t>(n_heads * dim_v) * sizeof(float));
          AttentionArgs args = {};
          args.q = q.data();
          args.q_stride = static_cast<size_t>(dim_k);
          args.n_heads = n_heads;
          args.dim_k = dim_k;
          args.dim_v = dim_v;
          args.k = k_cache.as();
          args.v = v_cache.as();
          args.k_stride_bytes = bytes_of(dim_k);
          args.v_stride_bytes = bytes_of(dim_v);
          args.k_type = args.v_type = type;
          args.begin = begin;
          args.end = end;
          args.scale = 0.125f;
          args.softcap = softcap;
          args.sinks = has_sinks ? sinks.data() : nullptr;
          args.scores = scores.as<float>();
          args.out = out.as<float>();
          args.out_stride = static_cast<size_t>(dim_v);
          table.attention(args);
          CHECK((scores.is_intact() && out.is_intact()));
          for (int h = 0; h < n_heads; ++h) {
            std::vector<double> weights(static_cast<size_t>(n));
            double total = has_sinks ? std::exp(static_cast<double>(sinks[static_cast<size_t>(h)])) : 0.0;
            for (int p = 0; p < n; ++p) {
              double score = 0.0;
              for (int i = 0; i < dim_k; ++i) {
                score += static_cast<double>(q[static_cast<size_t>(h * dim_k + i)]) *
                         static_cast<double>(k_back[static_cast<size_t>((begin + p) * dim_k + i)]);
              }
              score *= 0.125;
              if (softcap != 0.0f) score = 5.0 * std::tanh(score / 5.0);
              weights[static_cast<size_t>(p)] = std::exp(score);
              total += std::exp(score);
            }
            for (int i = 0; i < dim_v; ++i) {
              double want = 0.0;
              for (int p = 0; p < n; ++p) {
                want += weights[static_cast<size_t>(p)] / total *
                        static_cast<double>(v_back[static_cast<size_t>((begin + p) * dim_v + i)]);
              }
              CHECK(std::fabs(static_cast<double>(out.as<float>()[h * dim_v + i]) - want) < 5e-6);
            }
          }
        }
      }
    }
  });
}

TEST_CASE("a head's result does not depend on the heads beside it") {
  for_tables([](const KernelTable& table) {
    TestRandom random = {11};
    constexpr int kHeads = 6, kDim = 64, kPositions = 37;
    const std::vector<float> q = random_floats(kHeads * kDim, -2.0f, 2.0f, random);
    const std::vector<float> kv = random_floats(kPositions * kDim, -2.0f, 2.0f, random);
    std::vector<float> scores(kHeads * kPositions);
    std::vector<float> together(kHeads * kDim);
    std::vector<float> alone(kHeads * kDim);
    const uint8_t* cache = reinterpret_cast<const uint8_t*>(kv.data());
    AttentionArgs args = {
        q.data(),     kDim, kHeads,     kDim, kDim, cache,   cache,         kDim * 4,        kDim * 4, KvType::kF32,
        KvType::kF32, 0,    kPositions, 0.2f, 0.0f, nullptr, scores.data(), together.data(), kDim};
    table.attention(args);
    for (int h = 0; h < kHeads; ++h) {
      args.q = q.data() + h * kDim;
      args.n_heads = 1;
      args.out = alone.data() + h * kDim;
      table.attention(args);
    }
    CHECK(alone == together);
  });
}

// corrects: what the state knows of the value is taken off first, as the delta rule does.
void check_recurrence(decltype(KernelTable::delta_rule) rule, bool corrects, float key_range) {
  constexpr float kDecay = 0.9f, kFactor = 0.3f;
  TestRandom random = {12};
  for (const auto& [n_k, n_v] : {std::array{128, 128}, std::array{20, 7}, std::array{1, 1}, std::array{64, 33}}) {
    const size_t n_key = static_cast<size_t>(n_k);
    const size_t n_value = static_cast<size_t>(n_v);
    Guarded state(n_key * n_value * sizeof(float));
    std::vector<double> want(n_key * n_value);
    for (size_t i = 0; i < want.size(); ++i) {
      state.as<float>()[i] = random.uniform(-1.0f, 1.0f);
      want[i] = static_cast<double>(state.as<float>()[i]);
    }
    const std::vector<float> q = random_floats(n_key, -0.2f, 0.2f, random);
    const std::vector<float> k = random_floats(n_key, -key_range, key_range, random);
    const std::vector<float> v = random_floats(n_value, -1.0f, 1.0f, random);
    Guarded out(n_value * sizeof(float));
    rule(state.as<float>(), q.data(), k.data(), v.data(), kDecay, kFactor, n_k, n_v, out.as<float>());
    CHECK((state.is_intact() && out.is_intact()));
    for (size_t r = 0; r < n_value; ++r) {
      double known = 0.0;
      for (size_t i = 0; i < n_key; ++i)
        known += (want[r * n_key + i] *= static_cast<double>(kDecay)) * static_cast<double>(k[i]);
      const double change = static_cast<double>(kFactor) * (static_cast<double>(v[r]) - (corrects ? known : 0.0));
      double result = 0.0;
      for (size_t i = 0; i < n_key; ++i) {
        want[r * n_key + i] += change * static_cast<double>(k[i]);
        result += want[r * n_key + i] * static_cast<double>(q[i]);
        CHECK(std::fabs(want[r * n_key + i] - static_cast<double>(state.as<float>()[r * n_key + i])) < 1e-6);
      }
      CHECK(std::fabs(result - static_cast<double>(out.as<float>()[r])) < 2e-6);
    }
  }
}

TEST_CASE("the delta rule agrees with double") {
  for_tables([](const KernelTable& table) { check_recurrence(table.delta_rule, true, 0.2f); });
}

TEST_CASE("the decay rule agrees with double") {
  for_tables([](const KernelTable& table) { check_recurrence(table.decay_rule, false, 1.0f); });
}

#include "kernels/self_test.h"

#include <cmath>
#include <vector>

#include "kernels/tables.h"
#include "kernels/test_blocks.h"

namespace les {

namespace {

constexpr int kRows = 9;
constexpr int kCols = 3;
constexpr int kIn = 512;
constexpr int kTail = 96;  // for types with blocks of 32: not a multiple of what vectors take at once

using Floats = std::vector<float>;

Floats random_floats(size_t n, float low, float high, TestRandom& random) {
  Floats values(n);
  for (float& value : values) value = random.uniform(low, high);
  return values;
}

// Sums in another order differ by rounding; a wrong kernel differs by the size of the values.
Status compare(const KernelTable& table, const char* kernel, const char* detail, const Floats& got,
               const Floats& want) {
  double square = 0.0;
  for (const float value : want) square += static_cast<double>(value) * value;
  const double bound = 1e-4 * std::sqrt(square / static_cast<double>(want.size())) + 1e-30;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - want[i]);
    if (error <= bound) continue;
    return make_error(Code::kInternal, "self-test of the %s kernels: %s%s gives %g at %zu, scalar %g", table.isa,
                      kernel, detail, static_cast<double>(got[i]), i, static_cast<double>(want[i]));
  }
  return Status::ok();
}

struct TestActivations {
  Floats f32, scale, sum;
  std::vector<int8_t> q8;
  Activations view = {};
};

Status quantize(const KernelTable& table, int n_in, TestRandom& random, TestActivations& x) {
  const size_t n = static_cast<size_t>(n_in) * kCols;
  x.f32 = random_floats(n, -1.0f, 1.0f, random);
  x.q8.resize(n);
  x.scale.resize(n / kActBlock);
  x.sum.resize(n / kActBlock);
  std::vector<int8_t> q8(n);
  Floats scale(n / kActBlock);
  Floats sum(n / kActBlock);
  kScalarKernels.quantize_activations(x.f32.data(), static_cast<int>(n), x.q8.data(), x.scale.data(), x.sum.data());
  table.quantize_activations(x.f32.data(), static_cast<int>(n), q8.data(), scale.data(), sum.data());
  if (q8 != x.q8) {
    return make_error(Code::kInternal,
                      "self-test of the %s kernels: quantize_activations gives other bytes than scalar", table.isa);
  }
  LES_RETURN_IF_ERROR(compare(table, "quantize_activations", " scale", scale, x.scale));
  LES_RETURN_IF_ERROR(compare(table, "quantize_activations", " sum", sum, x.sum));
  x.view = {x.f32.data(), x.q8.data(), x.scale.data(), x.sum.data(), static_cast<size_t>(n_in), n_in, kCols};
  return Status::ok();
}

Status test_product(const KernelTable& table, const char* kernel, MatmulFn fn, MatmulFn reference, const char* type,
                    const uint8_t* w, size_t row_bytes, const Activations& x) {
  if (fn == nullptr)
    return make_error(Code::kInternal, "self-test of the %s kernels: no %s for %s", table.isa, kernel, type);
  const std::string detail = std::string(" ") + type;
  Floats got(kRows * kCols);
  Floats want(kRows * kCols);
  reference(w, row_bytes, kRows, x, want.data(), kRows);
  fn(w, row_bytes, kRows, x, got.data(), kRows);
  LES_RETURN_IF_ERROR(compare(table, kernel, detail.c_str(), got, want));
  Activations one = x;
  one.n_cols = 1;
  Floats first(kRows);
  fn(w, row_bytes, kRows, one, first.data(), kRows);
  for (size_t r = 0; r < kRows; ++r) {
    if (first[r] == got[r]) continue;
    return make_error(Code::kInternal, "self-test of the %s kernels: %s%s gives %g for one column, %g beside others",
                      table.isa, kernel, detail.c_str(), static_cast<double>(first[r]), static_cast<double>(got[r]));
  }
  return Status::ok();
}

Status test_type(const KernelTable& table, const TestType& type, const Activations& x, TestRandom& random) {
  const size_t slot = static_cast<size_t>(type.type);
  const size_t n_blocks = static_cast<size_t>(x.n_in / type.block_elements);
  const size_t row_bytes = n_blocks * static_cast<size_t>(type.block_bytes);
  const char* name = qtype_info(type.type).name;
  std::vector<uint8_t> w(row_bytes * kRows);
  fill_test_blocks(type, w.data(), n_blocks * kRows, random);
  LES_RETURN_IF_ERROR(
      test_product(table, "matmul", table.matmul[slot], kScalarKernels.matmul[slot], name, w.data(), row_bytes, x));
  return test_product(table, "matmul_f32", table.matmul_f32[slot], kScalarKernels.matmul_f32[slot], name, w.data(),
                      row_bytes, x);
}

Status test_floats(const KernelTable& table, const Activations& x, TestRandom& random) {
  const Floats f32 = random_floats(static_cast<size_t>(x.n_in) * kRows, -1.0f, 1.0f, random);
  std::vector<uint8_t> half(f32.size() * 2);
  std::vector<uint8_t> want(half.size());
  kScalarKernels.store_kv(f32.data(), static_cast<int>(f32.size()), KvType::kF16, want.data());
  table.store_kv(f32.data(), static_cast<int>(f32.size()), KvType::kF16, half.data());
  if (half != want)
    return make_error(Code::kInternal, "self-test of the %s kernels: store_kv F16 differs from scalar", table.isa);
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(f32.data());
  const struct {
    QType type;
    const uint8_t* data;
    size_t size;
  } cases[] = {{QType::kF32, bytes, 4}, {QType::kF16, half.data(), 2}, {QType::kBF16, half.data(), 2}};
  for (const auto& c : cases) {
    const size_t slot = static_cast<size_t>(c.type);
    LES_RETURN_IF_ERROR(test_product(table, "matmul", table.matmul[slot], kScalarKernels.matmul[slot],
                                     qtype_info(c.type).name, c.data, c.size * static_cast<size_t>(x.n_in), x));
  }
  return Status::ok();
}

Status test_attention(const KernelTable& table, KvType type, const char* name, TestRandom& random) {
  constexpr int kHeads = 5, kDim = 64, kPositions = 19;
  const Floats q = random_floats(kHeads * kDim, -1.0f, 1.0f, random);
  const Floats kv = random_floats(kPositions * kDim, -1.0f, 1.0f, random);
  const Floats sinks = random_floats(kHeads, -1.0f, 1.0f, random);
  const size_t stride = kDim * sizeof(float);
  std::vector<uint8_t> cache(stride * kPositions);
  for (size_t p = 0; p < kPositions; ++p)
    kScalarKernels.store_kv(kv.data() + p * kDim, kDim, type, cache.data() + p * stride);
  Floats scores(kHeads * kPositions);
  Floats got(kHeads * kDim);
  Floats want(got.size());
  AttentionArgs args = {q.data(), kDim,         kHeads,        kDim,        kDim, cache.data(), cache.data(),
                        stride,   stride,       type,          type,        0,    kPositions,   0.125f,
                        30.0f,    sinks.data(), scores.data(), want.data(), kDim};
  kScalarKernels.attention(args);
  args.out = got.data();
  table.attention(args);
  return compare(table, "attention", name, got, want);
}

Status test_elementwise(const KernelTable& table, TestRandom& random) {
  constexpr int kN = 83;
  const Floats a = random_floats(kN, -6.0f, 6.0f, random);
  const Floats b = random_floats(kN, -2.0f, 2.0f, random);
  Floats got(kN);
  Floats want(kN);
  for (const Act act : {Act::kSilu, Act::kGelu, Act::kGeluTanh, Act::kRelu, Act::kReluSquared, Act::kSwigluOai}) {
    kScalarKernels.glu(act, a.data(), b.data(), kN, want.data());
    table.glu(act, a.data(), b.data(), kN, got.data());
    LES_RETURN_IF_ERROR(compare(table, "glu", "", got, want));
  }
  kScalarKernels.rms_norm(a.data(), b.data(), kN, 1e-6f, want.data());
  table.rms_norm(a.data(), b.data(), kN, 1e-6f, got.data());
  LES_RETURN_IF_ERROR(compare(table, "rms_norm", "", got, want));
  got = want = a;
  kScalarKernels.softmax(want.data(), kN);
  table.softmax(got.data(), kN);
  LES_RETURN_IF_ERROR(compare(table, "softmax", "", got, want));
  got = want = a;
  kScalarKernels.add(b.data(), kN, want.data());
  table.add(b.data(), kN, got.data());
  LES_RETURN_IF_ERROR(compare(table, "add", "", got, want));
  kScalarKernels.add_scaled(b.data(), 0.37f, kN, want.data());
  table.add_scaled(b.data(), 0.37f, kN, got.data());
  LES_RETURN_IF_ERROR(compare(table, "add_scaled", "", got, want));
  LES_RETURN_IF_ERROR(
      compare(table, "dot", "", {table.dot(a.data(), b.data(), kN)}, {kScalarKernels.dot(a.data(), b.data(), kN)}));

  constexpr int kKey = 40, kValue = 7;
  Floats state = random_floats(kKey * kValue, -1.0f, 1.0f, random);
  Floats state_want = state;
  got.assign(kValue, 0.0f);
  want.assign(kValue, 0.0f);
  kScalarKernels.delta_rule(state_want.data(), a.data(), b.data(), a.data() + 50, 0.9f, 0.4f, kKey, kValue,
                            want.data());
  table.delta_rule(state.data(), a.data(), b.data(), a.data() + 50, 0.9f, 0.4f, kKey, kValue, got.data());
  LES_RETURN_IF_ERROR(compare(table, "delta_rule", " output", got, want));
  LES_RETURN_IF_ERROR(compare(table, "delta_rule", " state", state, state_want));
  kScalarKernels.decay_rule(state_want.data(), a.data(), b.data(), a.data() + 50, 0.9f, 0.4f, kKey, kValue,
                            want.data());
  table.decay_rule(state.data(), a.data(), b.data(), a.data() + 50, 0.9f, 0.4f, kKey, kValue, got.data());
  LES_RETURN_IF_ERROR(compare(table, "decay_rule", " output", got, want));
  return compare(table, "decay_rule", " state", state, state_want);
}

}  // namespace

Status self_test(const KernelTable& table) {
  TestRandom random = {1};
  TestActivations whole;
  TestActivations with_tail;
  LES_RETURN_IF_ERROR(quantize(table, kIn, random, whole));
  LES_RETURN_IF_ERROR(quantize(table, kIn + kTail, random, with_tail));
  size_t n_types = 0;
  const TestType* types = test_types(&n_types);
  for (size_t i = 0; i < n_types; ++i) {
    LES_RETURN_IF_ERROR(
        test_type(table, types[i], types[i].block_elements == kActBlock ? with_tail.view : whole.view, random));
  }
  LES_RETURN_IF_ERROR(test_floats(table, whole.view, random));
  LES_RETURN_IF_ERROR(test_attention(table, KvType::kF32, " F32", random));
  LES_RETURN_IF_ERROR(test_attention(table, KvType::kF16, " F16", random));
  LES_RETURN_IF_ERROR(test_attention(table, KvType::kQ8_0, " Q8_0", random));
  return test_elementwise(table, random);
}

}  // namespace les

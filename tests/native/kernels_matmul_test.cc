// The products of every type and instruction set against sums in double of what the codec says the weights are.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>

#include "kernels/kernels.h"
#include "kernels_util.h"
#include "quant/codec.h"

using namespace les;

namespace {

constexpr int kMaxRows = 7;

// A matrix whose rows are `slack` bytes apart from each other and end at a guard page, so that rows are unaligned.
struct Weights {
  TestType type;
  int n_in;
  size_t row_bytes;
  std::unique_ptr<Guarded> bytes;
  std::vector<float> values;  // [kMaxRows, n_in]

  Weights(const TestType& t, int n, size_t slack, TestRandom& random) : type(t), n_in(n) {
    const size_t n_blocks = static_cast<size_t>(n / t.block_elements);
    const size_t packed_bytes = n_blocks * static_cast<size_t>(t.block_bytes);
    row_bytes = packed_bytes + slack;
    bytes = std::make_unique<Guarded>(row_bytes * (kMaxRows - 1) + packed_bytes);
    values.resize(static_cast<size_t>(n) * kMaxRows);
    for (size_t r = 0; r < kMaxRows; ++r) {
      uint8_t* row = bytes->as() + r * row_bytes;
      if (t.block_elements > 1) {
        fill_test_blocks(t, row, n_blocks, random);
      } else {
        fill_floats(row, random);
      }
      dequantizer(t.type)(row, n, values.data() + r * static_cast<size_t>(n));
    }
  }

  void fill_floats(uint8_t* row, TestRandom& random) const {
    for (int i = 0; i < n_in; ++i) {
      const float value = random.uniform(-1.0f, 1.0f);
      const size_t at = static_cast<size_t>(i * type.block_bytes);
      if (type.type == QType::kF16) {
        kernels_named("scalar")->store_kv(&value, 1, KvType::kF16, row + at);
      } else {
        std::memcpy(row + at, reinterpret_cast<const uint8_t*>(&value) + (4 - type.block_bytes),
                    static_cast<size_t>(type.block_bytes));
      }
    }
  }
};

std::vector<TestType> types_with_floats() {
  std::vector<TestType> types = all_test_types();
  types.push_back({QType::kF32, 1, 4, {-1, -1}});
  types.push_back({QType::kF16, 1, 2, {-1, -1}});
  types.push_back({QType::kBF16, 1, 2, {-1, -1}});
  return types;
}

bool is_float(const TestType& type) { return type.block_elements == 1; }

std::vector<int> widths(const TestType& type) {
  if (is_float(type)) return {1, 7, 33, 130};
  if (type.block_elements == 256) return {256, 1280};
  return {type.block_elements, type.block_elements * 3, 256, 256 * 5 + type.block_elements};
}

// |got - want| is bounded by the rounding of a float sum: so many units of the sum of magnitudes.
void check_product(MatmulFn fn, bool uses_q8, const Weights& w, int n_rows, const Activations& x) {
  const size_t ldy = static_cast<size_t>(n_rows) + 1;
  Guarded y((ldy * static_cast<size_t>(x.n_cols - 1) + static_cast<size_t>(n_rows)) * sizeof(float));
  float* out = y.as<float>();
  for (int c = 0; c + 1 < x.n_cols; ++c) out[ldy * static_cast<size_t>(c) + static_cast<size_t>(n_rows)] = 4711.0f;
  fn(w.bytes->as() + (kMaxRows - static_cast<size_t>(n_rows)) * w.row_bytes, w.row_bytes, n_rows, x, out, ldy);
  CHECK(y.is_intact());
  for (int c = 0; c < x.n_cols; ++c) {
    for (int r = 0; r < n_rows; ++r) {
      double want = 0.0;
      double magnitude = 0.0;
      for (int i = 0; i < x.n_in; ++i) {
        const size_t at = static_cast<size_t>(c) * x.ld + static_cast<size_t>(i);
        const double value =
            uses_q8 ? static_cast<double>(x.scale[at / kActBlock]) * x.q8[at] : static_cast<double>(x.f32[at]);
        const double term =
            value * static_cast<double>(w.values[static_cast<size_t>((kMaxRows - n_rows + r) * x.n_in + i)]);
        want += term;
        magnitude += std::fabs(term);
      }
      const double got = static_cast<double>(out[static_cast<size_t>(c) * ldy + static_cast<size_t>(r)]);
      // Types with minima subtract sums that are larger than their terms.
      REQUIRE_MESSAGE(std::fabs(got - want) <= 1e-6 * magnitude + 1e-12,
                      "row " << r << " column " << c << ": " << got << " instead of " << want);
    }
    if (c + 1 < x.n_cols) CHECK(out[ldy * static_cast<size_t>(c) + static_cast<size_t>(n_rows)] == 4711.0f);
  }
}

template <typename Body>
void for_all(Body body) {
  for (const KernelTable* table : usable_tables()) {
    const std::string isa = table->isa;
    CAPTURE(isa);
    for (const TestType& type : types_with_floats()) {
      const std::string name = qtype_info(type.type).name;
      CAPTURE(name);
      body(*table, type);
    }
  }
}

int padded(int n) { return (n + kActBlock - 1) / kActBlock * kActBlock; }

}  // namespace

TEST_CASE("products of every type, instruction set, row and column count agree with double") {
  for_all([](const KernelTable& table, const TestType& type) {
    TestRandom random = {static_cast<uint64_t>(type.type) + 1};
    for (const int n_in : widths(type)) {
      CAPTURE(n_in);
      const Weights w(type, n_in, 3, random);
      const size_t slot = static_cast<size_t>(type.type);
      for (int n_cols = 1; n_cols <= 17; n_cols += n_cols < 5 ? 1 : 4) {
        CAPTURE(n_cols);
        const ActivationBuffer x(table, n_in, n_cols, static_cast<size_t>(padded(n_in) + 32), random);
        for (const int n_rows : {1, 2, 3, 5, 7}) {
          CAPTURE(n_rows);
          check_product(table.matmul[slot], !is_float(type), w, n_rows, x.view);
          check_product(table.matmul_f32[slot], false, w, n_rows, x.view);
        }
      }
    }
  });
}

TEST_CASE("a column has the same bits alone, beside others, and in any number of rows") {
  for_all([](const KernelTable& table, const TestType& type) {
    TestRandom random = {7};
    const int n_in = is_float(type) ? 130 : 256 * 6 + (type.block_elements < 256 ? 64 : 0);
    constexpr int kRows = 21;
    constexpr int kCols = 70;
    const size_t row_bytes = static_cast<size_t>(n_in / type.block_elements * type.block_bytes);
    std::vector<uint8_t> w(row_bytes * kRows);
    if (is_float(type)) {
      for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<uint8_t>(random.bits() & 0xbf);
    } else {
      fill_test_blocks(type, w.data(), w.size() / static_cast<size_t>(type.block_bytes), random);
    }
    const ActivationBuffer x(table, n_in, kCols, static_cast<size_t>(padded(n_in)), random);
    for (const MatmulFn fn :
         {table.matmul[static_cast<size_t>(type.type)], table.matmul_f32[static_cast<size_t>(type.type)]}) {
      std::vector<float> whole(kRows * kCols);
      fn(w.data(), row_bytes, kRows, x.view, whole.data(), kRows);
      const auto check = [&](int first_row, int n_rows, int first_col, int n_cols) {
        Activations part = x.view;
        const size_t at = static_cast<size_t>(first_col) * part.ld;
        part.f32 += at;
        part.q8 += at;
        part.scale += at / kActBlock;
        part.sum += at / kActBlock;
        part.n_cols = n_cols;
        std::vector<float> y(static_cast<size_t>(n_rows * n_cols));
        fn(w.data() + static_cast<size_t>(first_row) * row_bytes, row_bytes, n_rows, part, y.data(),
           static_cast<size_t>(n_rows));
        int n_different = 0;
        for (int c = 0; c < n_cols; ++c) {
          n_different += std::memcmp(&y[static_cast<size_t>(c * n_rows)],
                                     &whole[static_cast<size_t>((first_col + c) * kRows + first_row)],
                                     sizeof(float) * static_cast<size_t>(n_rows)) != 0;
        }
        CAPTURE(first_row);
        CAPTURE(n_rows);
        CAPTURE(first_col);
        CAPTURE(n_cols);
        CHECK(n_different == 0);
      };
      for (int c = 0; c < kCols; c += 23) check(0, kRows, c, 1);
      for (const int n_cols : {2, 3, 4, 5, 8, 16, 17, 64, 65}) check(0, kRows, kCols - n_cols, n_cols);
      for (int r = 0; r < kRows; ++r) check(r, 1, 3, r % 3 + 1);
      for (const int n_rows : {2, 3, 4, 7, 8, 9, 13}) check(kRows - n_rows, n_rows, 1, n_rows % 2 == 0 ? 1 : 6);
    }
  });
}

TEST_CASE("products with SMMLA have the bits of those with SDOT") {
  const KernelTable* pairs = kernels_named("neon_i8mm");
  const KernelTable* dots = kernels_named("neon_dotprod");
  if (pairs == nullptr) {
    MESSAGE("skipped: no i8mm here");
    return;
  }
  REQUIRE(dots != nullptr);
  for (const TestType& type : all_test_types()) {
    const std::string name = qtype_info(type.type).name;
    CAPTURE(name);
    TestRandom random = {21};
    const int n_in = 256 * 9 + (type.block_elements < 256 ? 64 : 0);
    constexpr size_t kRows = 27;
    const size_t row_bytes = static_cast<size_t>(n_in / type.block_elements * type.block_bytes);
    std::vector<uint8_t> w(row_bytes * kRows);
    fill_test_blocks(type, w.data(), w.size() / static_cast<size_t>(type.block_bytes), random);
    for (const int n_cols : {1, 2, 3, 4, 5, 7, 16, 67}) {
      CAPTURE(n_cols);
      const ActivationBuffer x(*dots, n_in, n_cols, static_cast<size_t>(padded(n_in)), random);
      std::vector<float> a(kRows * static_cast<size_t>(n_cols));
      std::vector<float> b(a.size());
      pairs->matmul[static_cast<size_t>(type.type)](w.data(), row_bytes, kRows, x.view, a.data(), kRows);
      dots->matmul[static_cast<size_t>(type.type)](w.data(), row_bytes, kRows, x.view, b.data(), kRows);
      CHECK(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
    }
  }
}

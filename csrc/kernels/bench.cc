#include "kernels/bench.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/arena.h"
#include "base/clock.h"
#include "cpu/thread_pool.h"
#include "kernels/test_blocks.h"

namespace les {

namespace {

constexpr int kRowGrain = 16;  // as the model's products are split
constexpr int64_t kMinRoundNs = 20'000'000;

template <typename Body>
double seconds_of(Body body) {
  const int64_t start_ns = now_ns();
  body();
  return static_cast<double>(now_ns() - start_ns) * 1e-9;
}

// Best time of one call, from rounds long enough for the clock.
template <typename Body>
double best_seconds(int n_rounds, Body body) {
  body();
  double best = 1e30;
  for (int round = 0; round < n_rounds; ++round) {
    int n_calls = 0;
    const int64_t start_ns = now_ns();
    do {
      body();
      ++n_calls;
    } while (now_ns() - start_ns < kMinRoundNs);
    best = std::min(best, static_cast<double>(now_ns() - start_ns) * 1e-9 / n_calls);
  }
  return best;
}

// Sums whole lines with prefetch ahead, the fastest plain reading found on the machines tried.
uint64_t read_lines(const uint8_t* data, size_t n_lines) {
  constexpr size_t kAheadLines = 128;
  uint64_t sum[8] = {};
  for (size_t i = 0; i < n_lines; ++i) {
    __builtin_prefetch(data + (i + kAheadLines) * 64);
    uint64_t words[8];
    std::memcpy(words, data + i * 64, sizeof(words));
    for (size_t j = 0; j < 8; ++j) sum[j] += words[j];
  }
  return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

double read_seconds(ThreadPool& pool, const uint8_t* data, size_t size_bytes) {
  constexpr size_t kRangeLines = 4096;
  std::vector<uint64_t> sinks(static_cast<size_t>(pool.n_threads()) * 8);
  return seconds_of([&] {
    pool.parallel_for(static_cast<int64_t>(size_bytes / 64), kRangeLines, [&](int64_t begin, int64_t end, int thread) {
      sinks[static_cast<size_t>(thread) * 8] += read_lines(data + begin * 64, static_cast<size_t>(end - begin));
    });
  });
}

// Activations of n_cols columns in memory of their own.
struct Columns {
  std::vector<float> f32, scale, sum;
  std::vector<int8_t> q8;
  Activations view = {};
};

Columns make_columns(const KernelTable& table, int n_in, int n_cols) {
  const auto ld = static_cast<size_t>((n_in + kActBlock - 1) / kActBlock * kActBlock);
  const size_t n = ld * static_cast<size_t>(n_cols);
  Columns x;
  x.f32.resize(n);
  x.q8.resize(n);
  x.scale.resize(n / kActBlock);
  x.sum.resize(n / kActBlock);
  TestRandom random = {2};
  for (float& value : x.f32) value = random.uniform(-1.0f, 1.0f);
  table.quantize_activations(x.f32.data(), static_cast<int>(n), x.q8.data(), x.scale.data(), x.sum.data());
  x.view = {x.f32.data(), x.q8.data(), x.scale.data(), x.sum.data(), ld, n_in, n_cols};
  return x;
}

struct Product {
  MatmulFn matmul;
  size_t row_bytes;
};

Result<Product> find_product(const BenchOptions& options, QType type, BenchShape shape) {
  if (options.table == nullptr) return make_error(Code::kUnsupported, "no kernels for this processor");
  if (shape.n_in < 1 || shape.n_out < 1 || options.n_threads < 1 || options.n_rounds < 1) {
    return make_error(Code::kInvalidArgument, "sizes, threads and rounds are 1 or more");
  }
  const auto slot = static_cast<size_t>(type);
  const MatmulFn matmul = options.use_float ? options.table->matmul_f32[slot] : options.table->matmul[slot];
  if (matmul == nullptr) return make_error(Code::kUnsupported, "%s is no weight type", qtype_info(type).name);
  if (qtype_info(type).block_elements > 1 && shape.n_in % kActBlock != 0) {
    return make_error(Code::kInvalidArgument, "rows of %d weights are not whole blocks of activations", shape.n_in);
  }
  auto bytes = row_bytes(type, static_cast<uint64_t>(shape.n_in));
  if (!bytes.is_ok()) return Status(Code::kInvalidArgument, bytes.status().message());
  return Product{matmul, static_cast<size_t>(*bytes)};
}

// Small values of any type over size_bytes; the content repeats after some blocks, as only speed is looked at.
void fill_weights(QType type, uint8_t* out, size_t size_bytes) {
  std::vector<uint8_t> pattern;
  TestRandom random = {1};
  size_t n_types = 0;
  const TestType* types = test_types(&n_types);
  const TestType* found = std::find_if(types, types + n_types, [&](const TestType& t) { return t.type == type; });
  if (found != types + n_types) {
    constexpr size_t kBlocks = 4099;
    pattern.resize(kBlocks * static_cast<size_t>(found->block_bytes));
    fill_test_blocks(*found, pattern.data(), kBlocks, random);
  } else {
    pattern.resize(65536);
    for (uint8_t& byte : pattern) byte = static_cast<uint8_t>(random.bits() & 0xbf);  // no large exponent
  }
  for (size_t at = 0; at < size_bytes; at += pattern.size()) {
    std::memcpy(out + at, pattern.data(), std::min(pattern.size(), size_bytes - at));
  }
}

void run_product(ThreadPool& pool, const Product& product, const uint8_t* w, BenchShape shape, const Activations& x,
                 float* y) {
  pool.parallel_for(shape.n_out, kRowGrain, [&](int64_t begin, int64_t end, int) {
    product.matmul(w + static_cast<size_t>(begin) * product.row_bytes, product.row_bytes, static_cast<int>(end - begin),
                   x, y + begin, static_cast<size_t>(shape.n_out));
  });
}

}  // namespace

Result<StreamSpeed> bench_decode(const BenchOptions& options, QType type, BenchShape shape) {
  LES_ASSIGN_OR_RETURN(const Product product, find_product(options, type, shape));
  const size_t matrix_bytes = product.row_bytes * static_cast<size_t>(shape.n_out);
  const size_t n_matrices = std::max<size_t>(1, options.memory_bytes / matrix_bytes);
  const size_t size_bytes = n_matrices * matrix_bytes;
  LES_ASSIGN_OR_RETURN(Buffer weights, make_buffer(size_bytes));
  fill_weights(type, weights.data(), size_bytes);
  const Columns x = make_columns(*options.table, shape.n_in, 1);
  std::vector<float> y(static_cast<size_t>(shape.n_out));
  ThreadPool pool(options.n_threads);
  double product_s = 1e30;
  double read_s = 1e30;
  for (int round = 0; round < options.n_rounds; ++round) {
    read_s = std::min(read_s, read_seconds(pool, weights.data(), size_bytes));
    const double took_s = seconds_of([&] {
      for (size_t i = 0; i < n_matrices; ++i) {
        run_product(pool, product, weights.data() + i * matrix_bytes, shape, x.view, y.data());
      }
    });
    product_s = std::min(product_s, took_s);
  }
  return StreamSpeed{static_cast<double>(size_bytes) / product_s, static_cast<double>(size_bytes / 64 * 64) / read_s};
}

Result<double> bench_prefill(const BenchOptions& options, QType type, BenchShape shape, int n_cols) {
  LES_ASSIGN_OR_RETURN(const Product product, find_product(options, type, shape));
  if (n_cols < 1) return make_error(Code::kInvalidArgument, "%d columns", n_cols);
  const size_t matrix_bytes = product.row_bytes * static_cast<size_t>(shape.n_out);
  LES_ASSIGN_OR_RETURN(Buffer weights, make_buffer(matrix_bytes));
  fill_weights(type, weights.data(), matrix_bytes);
  const Columns x = make_columns(*options.table, shape.n_in, n_cols);
  std::vector<float> y(static_cast<size_t>(shape.n_out) * static_cast<size_t>(n_cols));
  ThreadPool pool(options.n_threads);
  const double took_s =
      best_seconds(options.n_rounds, [&] { run_product(pool, product, weights.data(), shape, x.view, y.data()); });
  return 2.0 * shape.n_in * shape.n_out * n_cols / took_s;
}

Result<double> bench_dot_peak(const BenchOptions& options) {
  if (options.table == nullptr) return make_error(Code::kUnsupported, "no kernels for this processor");
  if (options.n_threads < 1) return make_error(Code::kInvalidArgument, "%d threads", options.n_threads);
  constexpr int64_t kRounds = 20000;
  ThreadPool pool(options.n_threads);
  const int64_t n_ranges = options.n_threads * int64_t{8};
  std::vector<int32_t> checksums(static_cast<size_t>(n_ranges));
  std::vector<int64_t> operations(static_cast<size_t>(n_ranges));
  const double took_s = best_seconds(std::max(1, options.n_rounds), [&] {
    pool.parallel_for(n_ranges, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<size_t>(i);
        operations[at] = options.table->dot_peak(kRounds, &checksums[at]);
      }
    });
  });
  return static_cast<double>(operations[0]) * static_cast<double>(n_ranges) / took_s;
}

}  // namespace les

// Speed of the matrix products. Decode: GB/s of weights read from memory by N threads, beside plain reading. Prefill:
// GFLOP/s of one matrix in cache at several widths. Usage: bench_kernels [--threads N] [--isa NAME] [--type NAME]
// [--f32]
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/arena.h"
#include "kernels/kernels.h"
#include "kernels_util.h"

namespace les {
namespace {

constexpr size_t kMatrixBytes = 256ull << 20;  // a thread's share is far above every cache
constexpr int kIn = 2048;

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The best time of `rounds` runs of body(thread) on all threads at once.
template <typename Body>
double best_time(int n_threads, int rounds, Body body) {
  double best = 1e30;
  double start = 0.0;
  std::barrier gate(n_threads);
  std::vector<std::thread> threads;
  for (int t = 0; t < n_threads; ++t) {
    threads.emplace_back([&, t] {
      for (int r = 0; r < rounds; ++r) {
        gate.arrive_and_wait();
        if (t == 0) start = seconds();
        body(t);
        gate.arrive_and_wait();
        if (t == 0) best = std::min(best, seconds() - start);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return best;
}

// Plain reading with prefetch, the fastest found on the machines tried.
double read_bandwidth(const uint8_t* data, int n_threads, int rounds) {
  constexpr size_t kAhead = 8192;
  std::vector<uint64_t> sinks(static_cast<size_t>(n_threads) * 8);
  const size_t share = kMatrixBytes / static_cast<size_t>(n_threads) / 64 * 64;
  const double time = best_time(n_threads, rounds, [&](int t) {
    const uint64_t* p = reinterpret_cast<const uint64_t*>(data + share * static_cast<size_t>(t));
    uint64_t sum[8] = {};
    for (size_t i = 0; i < share / 8; i += 8) {
      __builtin_prefetch(p + i + kAhead / 8);
      for (size_t j = 0; j < 8; ++j) sum[j] += p[i + j];
    }
    for (size_t j = 0; j < 8; ++j) sinks[static_cast<size_t>(t) * 8] += sum[j];
  });
  return static_cast<double>(share) * n_threads / time;
}

struct Options {
  int n_threads = 2;
  const char* isa = nullptr;
  std::string type;
  bool f32 = false;
};

void bench_type(const KernelTable& table, const TestType& type, const char* name, uint8_t* data,
                const Options& options) {
  const size_t slot = static_cast<size_t>(type.type);
  const MatmulFn matmul = options.f32 ? table.matmul_f32[slot] : table.matmul[slot];
  if (matmul == nullptr) return;
  TestRandom random = {1};
  const size_t row_bytes = static_cast<size_t>(kIn / type.block_elements * type.block_bytes);
  const int n_rows = static_cast<int>(kMatrixBytes / row_bytes);
  // Random content need not differ from row to row: only speed is looked at.
  const int n_distinct = 256;
  fill_test_blocks(type, data, n_distinct * row_bytes / static_cast<size_t>(type.block_bytes), random);
  for (int r = n_distinct; r < n_rows; ++r) {
    std::memcpy(data + static_cast<size_t>(r) * row_bytes, data + static_cast<size_t>(r % n_distinct) * row_bytes,
                row_bytes);
  }
  std::vector<float> y(static_cast<size_t>(n_rows));
  const ActivationBuffer x(table, kIn, 512, kIn, random);
  Activations one = x.view;
  one.n_cols = 1;
  const int share = n_rows / options.n_threads;
  constexpr int kCallRows = 64;  // as a thread pool hands them out
  // Alternating, so that a busy neighbour slows both.
  double time = 1e30;
  double bandwidth = 0.0;
  for (int round = 0; round < 5; ++round) {
    bandwidth = std::max(bandwidth, read_bandwidth(data, options.n_threads, 2));
    const double now = best_time(options.n_threads, 2, [&](int t) {
      for (int r = share * t; r < share * (t + 1); r += kCallRows) {
        matmul(data + static_cast<size_t>(r) * row_bytes, row_bytes, std::min(kCallRows, share * (t + 1) - r), one,
               y.data() + r, 0);
      }
    });
    time = std::min(time, now);
  }
  const double rate = static_cast<double>(row_bytes) * share * options.n_threads / time;
  std::printf("%-8s %6.2f of %6.2f GB/s %5.1f %%", name, rate / 1e9, bandwidth / 1e9, 100.0 * rate / bandwidth);

  for (const int n_cols : {4, 64, 512}) {
    const int rows = 256;
    std::vector<float> out(static_cast<size_t>(n_cols * rows * options.n_threads));
    Activations many = x.view;
    many.n_cols = n_cols;
    const int repeats = 512 / n_cols;
    const double t_gemm = best_time(options.n_threads, 3, [&](int t) {
      for (int i = 0; i < repeats; ++i) matmul(data, row_bytes, rows, many, out.data() + t * n_cols * rows, rows);
    });
    std::printf("  %d: %6.1f", n_cols, 2.0 * kIn * rows * n_cols * repeats * options.n_threads / t_gemm / 1e9);
  }
  std::printf(" GFLOP/s\n");
  std::fflush(stdout);
}

int run(const Options& options) {
  const KernelTable* table = options.isa != nullptr ? kernels_named(options.isa) : kernels();
  if (table == nullptr) {
    std::fprintf(stderr, "bench_kernels: no usable kernels of that name\n");
    return 1;
  }
  Result<Buffer> buffer = make_buffer(kMatrixBytes);
  if (!buffer.is_ok()) return 1;
  std::memset(buffer->data(), 1, kMatrixBytes);
  std::printf(
      "isa %s, %d threads, rows of %d; one column: GB/s of weights, of plain reading; then GFLOP/s by columns\n",
      table->isa, options.n_threads, kIn);
  std::vector<TestType> types = all_test_types();
  types.push_back({QType::kF16, 1, 2, {0, -1}});
  types.push_back({QType::kBF16, 1, 2, {0, -1}});
  types.push_back({QType::kF32, 1, 4, {2, -1}});
  for (const TestType& type : types) {
    const QTypeInfo* info = qtype_info(static_cast<uint32_t>(type.type));
    const char* name = info != nullptr ? info->name : "?";
    if (options.type.empty() || options.type == name) bench_type(*table, type, name, buffer->data(), options);
  }
  return 0;
}

}  // namespace
}  // namespace les

int main(int argc, char** argv) {
  les::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--f32") options.f32 = true;
    if (i + 1 >= argc) continue;
    if (arg == "--threads") options.n_threads = std::max(1, std::atoi(argv[i + 1]));
    if (arg == "--isa") options.isa = argv[i + 1];
    if (arg == "--type") options.type = argv[i + 1];
  }
  return les::run(options);
}

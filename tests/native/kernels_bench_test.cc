// That measurements measure: figures are positive and plausible, bad questions are refused. No speed is required.
#include <doctest/doctest.h>

#include "kernels/bench.h"
#include "kernels_util.h"

using namespace les;

namespace {

BenchOptions quick(const KernelTable* table, int n_threads) {
  BenchOptions options;
  options.table = table;
  options.n_threads = n_threads;
  options.memory_bytes = 1 << 20;
  options.n_rounds = 1;
  return options;
}

}  // namespace

TEST_CASE("every type is measured") {
  const BenchOptions options = quick(kernels_named("scalar"), 2);
  for (uint32_t id = 0; id < kQTypeSlots; ++id) {
    const QTypeInfo* info = qtype_info(id);
    if (info == nullptr || !info->is_weight) continue;
    CAPTURE(info->name);
    const auto speed = bench_decode(options, info->id, {256, 33});
    REQUIRE_MESSAGE(speed.is_ok(), speed.status().message());
    CHECK(speed.value().weight_bytes_per_s > 0);
    CHECK(speed.value().read_bytes_per_s > 0);
  }
}

TEST_CASE("every instruction set counts its dot products and is measured") {
  for (const KernelTable* table : usable_tables()) {
    const std::string isa = table->isa;
    CAPTURE(isa);
    int32_t checksum = 0;
    const int64_t operations = table->dot_peak(3, &checksum);
    CHECK(operations > 0);
    CHECK(operations % 3 == 0);
    CHECK(checksum != 0);
    const auto peak = bench_dot_peak(quick(table, 1));
    const auto speed = bench_prefill(quick(table, 1), QType::kQ8_0, {512, 32}, 8);
    REQUIRE(peak.is_ok());
    REQUIRE(speed.is_ok());
    CHECK(*speed > 0);
    CHECK(*peak > 0);
  }
}

TEST_CASE("what cannot be measured is refused") {
  const BenchOptions options = quick(kernels_named("scalar"), 1);
  CHECK(bench_decode(options, QType::kQ4_K, {300, 4}).status().code() == Code::kInvalidArgument);
  CHECK(bench_decode(options, QType::kQ8_0, {0, 4}).status().code() == Code::kInvalidArgument);
  CHECK(bench_prefill(options, QType::kQ8_0, {256, 4}, 0).status().code() == Code::kInvalidArgument);
  CHECK(bench_prefill(options, QType::kI8, {256, 4}, 1).status().code() == Code::kUnsupported);
  CHECK(bench_dot_peak(quick(nullptr, 1)).status().code() == Code::kUnsupported);
  CHECK(bench_dot_peak(quick(kernels_named("scalar"), 0)).status().code() == Code::kInvalidArgument);
}

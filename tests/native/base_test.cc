#include <doctest/doctest.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/status.h"

namespace les {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return make_error(Code::kInvalidArgument, "%d is odd", x);
  return x / 2;
}

Result<int> quarter(int x) {
  LES_ASSIGN_OR_RETURN(const int h, half(x));
  return half(h);
}

TEST_CASE("results carry values and errors through macros") {
  CHECK(*quarter(12) == 3);
  const Result<int> failed = quarter(6);
  REQUIRE_FALSE(failed.is_ok());
  CHECK(failed.status().code() == Code::kInvalidArgument);
  CHECK(failed.status().message() == "3 is odd");
}

TEST_CASE("sizes that overflow are refused") {
  uint64_t out = 0;
  CHECK(checked_mul(1ull << 32, 1ull << 31, &out));
  CHECK_FALSE(checked_mul(1ull << 32, 1ull << 32, &out));
  CHECK_FALSE(checked_add(~0ull, 1, &out));
  CHECK(align_up(1, 64) == 64);
  CHECK(align_up(64, 64) == 64);
}

TEST_CASE("buffers are page-aligned, zeroed, and zero again after release") {
  auto buffer = make_buffer(3 * kPageBytes + 1);
  REQUIRE(buffer.is_ok());
  uint8_t* data = buffer->data();
  CHECK(reinterpret_cast<uintptr_t>(data) % kPageBytes == 0);
  CHECK(buffer->size_bytes() == 4 * kPageBytes);
  CHECK(data[4 * kPageBytes - 1] == 0);
  data[kPageBytes] = 7;
  buffer->release(1, 2 * kPageBytes);
  CHECK(data[kPageBytes] == 0);
  Buffer moved = std::move(*buffer);
  CHECK(moved.data() == data);
}

}  // namespace
}  // namespace les

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "cpu/features.h"
#include "kernels/kernels.h"
#include "kernels/self_test.h"
#include "kernels_util.h"

using namespace les;

namespace {

// The table is chosen once a process, so every forced name gets its own. Returns 0: null, 1: that name, 2: another.
int choice_with(const char* forced) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("LES_FORCE_ISA", forced, 1);
    const KernelTable* table = kernels();
    _exit(table == nullptr ? 0 : (std::strcmp(table->isa, forced) == 0 ? 1 : 2));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a forced instruction set is the active one, and an unusable one gives none") {
  for (const char* name : {"scalar", "avx2", "avxvnni", "avx512", "avx512vbmi", "neon", "neon_dotprod", "neon_i8mm"}) {
    CAPTURE(name);
    CHECK(choice_with(name) == (kernels_named(name) != nullptr ? 1 : 0));
  }
  CHECK(choice_with("avx1024") == 0);
  CHECK(choice_with("AVX2") == 0);
  CHECK(choice_with("") == 2);
}

TEST_CASE("tables are offered only where the processor has their instructions") {
  const CpuFeatures cpu = cpu_features();
  CHECK(kernels_named("scalar") != nullptr);
  CHECK(kernels_named(nullptr) == nullptr);
  CHECK(kernels_named("") == nullptr);
  CHECK((kernels_named("avx2") != nullptr) == cpu.avx2);
  CHECK((kernels_named("avxvnni") != nullptr) == cpu.avxvnni);
  CHECK((kernels_named("avx512") != nullptr) == cpu.avx512);
  CHECK((kernels_named("avx512vbmi") != nullptr) == cpu.avx512vbmi);
  CHECK((kernels_named("neon") != nullptr) == cpu.neon);
  CHECK((kernels_named("neon_dotprod") != nullptr) == cpu.dotprod);
  CHECK((kernels_named("neon_i8mm") != nullptr) == cpu.i8mm);
}

TEST_CASE("an emulated processor gets the table that its tester expects") {
  const char* expected = std::getenv("LES_EXPECT_ISA");
  if (expected == nullptr) return;
  REQUIRE(kernels() != nullptr);
  CHECK(std::strcmp(kernels()->isa, expected) == 0);
}

TEST_CASE("every usable table passes the self-test") {
  for (const KernelTable* table : usable_tables()) {
    const Status status = self_test(*table);
    CHECK_MESSAGE(status.is_ok(), status.message());
  }
}

TEST_CASE("the self-test names the kernel that fails") {
  KernelTable broken = *kernels_named("scalar");
  broken.dot = [](const float*, const float*, int) { return 1.0f; };
  const Status status = self_test(broken);
  REQUIRE(!status.is_ok());
  CHECK(status.message().find("dot") != std::string::npos);
  broken = *kernels_named("scalar");
  broken.matmul[static_cast<size_t>(QType::kQ4_K)] = broken.matmul[static_cast<size_t>(QType::kQ4_0)];
  CHECK(self_test(broken).message().find("matmul Q4_K") != std::string::npos);
}

TEST_CASE("every weight type has both products in every table") {
  for (const KernelTable* table : usable_tables()) {
    for (uint32_t id = 0; id < kQTypeSlots; ++id) {
      const QTypeInfo* info = qtype_info(id);
      const bool is_weight = info != nullptr && info->is_weight;
      CAPTURE(id);
      CHECK((table->matmul[id] != nullptr) == is_weight);
      CHECK((table->matmul_f32[id] != nullptr) == is_weight);
    }
  }
}

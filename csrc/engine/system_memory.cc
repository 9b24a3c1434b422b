#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "engine/memory_plan.h"

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace les {

namespace {

constexpr uint64_t kUnlimited = UINT64_MAX;

// The value in KiB after `key` in /proc/<file>, in bytes; 0 when absent.
uint64_t proc_field_bytes(const char* file, const char* key) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind(key, 0) != 0) continue;
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str() + std::strlen(key), "%llu", &kib) == 1) return kib * 1024;
  }
  return 0;
}

uint64_t read_number(const std::string& path, uint64_t fallback) {
  std::ifstream in(path);
  uint64_t value = 0;
  return in >> value ? value : fallback;
}

// Page cache that the kernel would give back is not a cost.
uint64_t cgroup_left_bytes() {
  const uint64_t limit = read_number("/sys/fs/cgroup/memory.max", kUnlimited);
  if (limit != kUnlimited) {
    const uint64_t used = read_number("/sys/fs/cgroup/memory.current", 0);
    std::ifstream in("/sys/fs/cgroup/memory.stat");
    std::string key;
    uint64_t value = 0, file_bytes = 0;
    while (in >> key >> value) {
      if (key == "file") file_bytes = value;
    }
    return limit - std::min(limit, used - std::min(used, file_bytes));
  }
  const uint64_t old_limit = read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", kUnlimited);
  if (old_limit < (1ull << 60)) {
    const uint64_t used = read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", 0);
    return old_limit - std::min(old_limit, used);
  }
  return kUnlimited;
}

}  // namespace

uint64_t available_memory_bytes() {
#if defined(__APPLE__)
  uint64_t total = 0;
  size_t size = sizeof(total);
  sysctlbyname("hw.memsize", &total, &size, nullptr, 0);
  return total / 4 * 3;
#else
  const uint64_t machine = proc_field_bytes("/proc/meminfo", "MemAvailable:");
  return std::min(machine == 0 ? kUnlimited : machine, cgroup_left_bytes());
#endif
}

uint64_t peak_memory_bytes() {
  const uint64_t high_water = proc_field_bytes("/proc/self/status", "VmHWM:");
  if (high_water > 0) return high_water;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
#if defined(__APPLE__)
  return static_cast<uint64_t>(usage.ru_maxrss);
#else
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
#endif
}

}  // namespace les

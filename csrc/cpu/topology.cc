#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "cpu/thread_pool.h"

#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace les {

namespace {

#if defined(__linux__)

long read_number(const char* path) {
  long value = -1;
  if (std::FILE* file = std::fopen(path, "re")) {
    if (std::fscanf(file, "%ld", &value) != 1) value = -1;
    std::fclose(file);
  }
  return value;
}

// Processors that a container's quota pays for; a large number without one.
int quota_cpus() {
  if (std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "re")) {
    long quota = -1, period = -1;
    const int n_read = std::fscanf(file, "%ld %ld", &quota, &period);  // "max" leaves n_read at 0
    std::fclose(file);
    if (n_read == 2 && quota > 0 && period > 0) return static_cast<int>(std::max(1L, (quota + period - 1) / period));
    return 1 << 20;
  }
  const long quota = read_number("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  const long period = read_number("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (quota > 0 && period > 0) return static_cast<int>(std::max(1L, (quota + period - 1) / period));
  return 1 << 20;
}

// On mixed processors the cores whose capacity is at least three quarters of the largest; one slow core in a row-split
// product holds back all.
int big_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return static_cast<int>(std::thread::hardware_concurrency());
  std::vector<long> capacities;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    const std::string base = "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
    long capacity = read_number((base + "/cpu_capacity").c_str());
    if (capacity <= 0) capacity = read_number((base + "/cpufreq/cpuinfo_max_freq").c_str());
    capacities.push_back(capacity);
  }
  if (capacities.empty()) return 1;
  const long largest = *std::max_element(capacities.begin(), capacities.end());
  return static_cast<int>(
      std::count_if(capacities.begin(), capacities.end(), [&](long c) { return c * 4 >= largest * 3; }));
}

#elif defined(__APPLE__)

int quota_cpus() { return 1 << 20; }

int big_cores() {
  int n = 0;
  size_t size = sizeof(n);
  if (sysctlbyname("hw.perflevel0.physicalcpu", &n, &size, nullptr, 0) == 0 && n > 0) return n;
  return static_cast<int>(std::thread::hardware_concurrency());
}

#else

int quota_cpus() { return 1 << 20; }
int big_cores() { return static_cast<int>(std::thread::hardware_concurrency()); }

#endif

}  // namespace

int default_threads() { return std::clamp(std::min(big_cores(), quota_cpus()), 1, 16); }

}  // namespace les

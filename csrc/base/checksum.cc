#include "base/checksum.h"

#include "base/bytes.h"

namespace les {

namespace {

constexpr uint64_t kPrime32_1 = 0x9E3779B1u, kPrime32_2 = 0x85EBCA77u, kPrime32_3 = 0xC2B2AE3Du;
constexpr uint64_t kPrime64_1 = 0x9E3779B185EBCA87u, kPrime64_2 = 0xC2B2AE3D27D4EB4Fu, kPrime64_3 = 0x165667B19E3779F9u,
                   kPrime64_4 = 0x85EBCA77C2B2AE63u, kPrime64_5 = 0x27D4EB2F165667C5u;

// The algorithm's default secret.
alignas(64) constexpr uint8_t kSecret[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d, 0xe9,
    0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78,
    0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6,
    0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f,
    0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31,
    0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff,
    0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
    0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};

constexpr size_t kStripe = 64;
constexpr size_t kLanes = 8;
constexpr size_t kStripesPerBlock = (sizeof(kSecret) - kStripe) / 8;
constexpr size_t kBlock = kStripe * kStripesPerBlock;

uint64_t u64(const uint8_t* p) { return load_le<uint64_t>(p); }
uint64_t u32(const uint8_t* p) { return load_le<uint32_t>(p); }

uint64_t fold_product(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t avalanche(uint64_t h) {
  h ^= h >> 37;
  h *= 0x165667919E3779F9u;
  return h ^ (h >> 32);
}

uint64_t avalanche64(uint64_t h) {
  h ^= h >> 33;
  h *= kPrime64_2;
  h ^= h >> 29;
  h *= kPrime64_3;
  return h ^ (h >> 32);
}

uint64_t mix16(const uint8_t* p, const uint8_t* secret) { return fold_product(u64(p) ^ u64(secret), u64(p + 8) ^ u64(secret + 8)); }

uint64_t hash_0_to_16(const uint8_t* p, size_t n) {
  if (n > 8) {
    const uint64_t low = u64(p) ^ (u64(kSecret + 24) ^ u64(kSecret + 32));
    const uint64_t high = u64(p + n - 8) ^ (u64(kSecret + 40) ^ u64(kSecret + 48));
    return avalanche(n + __builtin_bswap64(low) + high + fold_product(low, high));
  }
  if (n >= 4) {
    const uint64_t combined = u32(p + n - 4) + (u32(p) << 32);
    uint64_t h = combined ^ (u64(kSecret + 8) ^ u64(kSecret + 16));
    h ^= ((h << 49) | (h >> 15)) ^ ((h << 24) | (h >> 40));
    h *= 0x9FB21C651E98DF25u;
    h ^= (h >> 35) + n;
    h *= 0x9FB21C651E98DF25u;
    return h ^ (h >> 28);
  }
  if (n > 0) {
    const uint64_t combined = (static_cast<uint64_t>(p[0]) << 16) | (static_cast<uint64_t>(p[n >> 1]) << 24) | p[n - 1] | (n << 8);
    return avalanche64(combined ^ (u32(kSecret) ^ u32(kSecret + 4)));
  }
  return avalanche64(u64(kSecret + 56) ^ u64(kSecret + 64));
}

uint64_t hash_17_to_128(const uint8_t* p, size_t n) {
  uint64_t sum = n * kPrime64_1;
  for (size_t i = (n - 1) / 32 + 1; i-- > 0;) {
    sum += mix16(p + 16 * i, kSecret + 32 * i);
    sum += mix16(p + n - 16 * (i + 1), kSecret + 32 * i + 16);
  }
  return avalanche(sum);
}

uint64_t hash_129_to_240(const uint8_t* p, size_t n) {
  uint64_t sum = n * kPrime64_1;
  for (size_t i = 0; i < 8; ++i) sum += mix16(p + 16 * i, kSecret + 16 * i);
  sum = avalanche(sum);
  for (size_t i = 8; i < n / 16; ++i) sum += mix16(p + 16 * i, kSecret + 16 * (i - 8) + 3);
  sum += mix16(p + n - 16, kSecret + 136 - 17);
  return avalanche(sum);
}

// The compiler turns the lanes into vectors: one product of 32-bit halves a lane.
inline void accumulate(uint64_t* acc, const uint8_t* p, const uint8_t* secret) {
  for (size_t i = 0; i < kLanes; ++i) {
    const uint64_t value = u64(p + 8 * i);
    const uint64_t keyed = value ^ u64(secret + 8 * i);
    acc[i ^ 1] += value;
    acc[i] += (keyed & 0xffffffffu) * (keyed >> 32);
  }
}

inline void scramble(uint64_t* acc) {
  const uint8_t* secret = kSecret + sizeof(kSecret) - kStripe;
  for (size_t i = 0; i < kLanes; ++i) acc[i] = ((acc[i] ^ (acc[i] >> 47)) ^ u64(secret + 8 * i)) * kPrime32_1;
}

uint64_t hash_long(const uint8_t* p, size_t n) {
  uint64_t acc[kLanes] = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3, kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};
  const size_t n_blocks = (n - 1) / kBlock;
  for (size_t b = 0; b < n_blocks; ++b, p += kBlock) {
    for (size_t s = 0; s < kStripesPerBlock; ++s) accumulate(acc, p + s * kStripe, kSecret + 8 * s);
    scramble(acc);
  }
  const size_t left = n - n_blocks * kBlock;
  const size_t n_stripes = (left - 1) / kStripe;
  for (size_t s = 0; s < n_stripes; ++s) accumulate(acc, p + s * kStripe, kSecret + 8 * s);
  accumulate(acc, p + left - kStripe, kSecret + sizeof(kSecret) - kStripe - 7);
  uint64_t sum = n * kPrime64_1;
  for (size_t i = 0; i < kLanes; i += 2) {
    sum += fold_product(acc[i] ^ u64(kSecret + 11 + 8 * i), acc[i + 1] ^ u64(kSecret + 11 + 8 * i + 8));
  }
  return avalanche(sum);
}

}  // namespace

uint64_t xxh3_64(const void* data, size_t size_bytes) {
  const auto* p = static_cast<const uint8_t*>(data);
  if (size_bytes <= 16) return hash_0_to_16(p, size_bytes);
  if (size_bytes <= 128) return hash_17_to_128(p, size_bytes);
  if (size_bytes <= 240) return hash_129_to_240(p, size_bytes);
  return hash_long(p, size_bytes);
}

}  // namespace les

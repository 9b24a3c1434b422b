// A GGUF file of experts only, in the temporary folder, for tests of what lies above the store.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace les {

class GgufWriter {
 public:
  void u32(uint32_t v) { put(&v, 4); }
  void u64(uint64_t v) { put(&v, 8); }
  void text(const std::string& s) {
    u64(s.size());
    put(s.data(), s.size());
  }
  void put(const void* data, size_t n) {
    const auto* p = static_cast<const uint8_t*>(data);
    bytes.insert(bytes.end(), p, p + n);
  }
  std::vector<uint8_t> bytes;
};

inline std::string write_temporary(const std::vector<uint8_t>& bytes, const char* suffix) {
  const char* folder = std::getenv("TMPDIR");
  std::string path = std::string(folder == nullptr ? "/tmp" : folder) + "/les-test-XXXXXX" + suffix;
  const int fd = mkstemps(path.data(), static_cast<int>(std::string(suffix).size()));
  std::FILE* file = fdopen(fd, "wb");
  std::fwrite(bytes.data(), 1, bytes.size(), file);
  std::fclose(file);
  return path;
}

// The float that row 0, column 0 of each slice of an expert begins with.
inline float marker(uint32_t layer, uint32_t expert, uint32_t slice) {
  return static_cast<float>(10'000 * layer + 10 * expert + slice);
}

// gate, up and down of [width, width] floats for every expert, all values the marker.
inline std::string write_expert_gguf(uint32_t n_layers, uint32_t n_expert, uint32_t width) {
  const char* kNames[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
  GgufWriter out;
  out.put("GGUF", 4);
  out.u32(3);
  out.u64(uint64_t{3} * n_layers);
  out.u64(1);
  out.text("general.architecture");
  out.u32(8);
  out.text("test");
  const uint64_t tensor_bytes = uint64_t{4} * width * width * n_expert;
  uint64_t offset = 0;
  for (uint32_t l = 0; l < n_layers; ++l) {
    for (const char* name : kNames) {
      out.text("blk." + std::to_string(l) + "." + name + ".weight");
      out.u32(3);
      out.u64(width);
      out.u64(width);
      out.u64(n_expert);
      out.u32(0);
      out.u64(offset);
      offset += align_up(tensor_bytes, 32);
    }
  }
  out.bytes.resize(align_up(out.bytes.size(), 32));
  for (uint32_t l = 0; l < n_layers; ++l) {
    for (uint32_t s = 0; s < 3; ++s) {
      for (uint32_t e = 0; e < n_expert; ++e) {
        const float value = marker(l, e, s);
        for (uint32_t i = 0; i < width * width; ++i) out.put(&value, 4);
      }
      out.bytes.resize(align_up(out.bytes.size(), 32));
    }
  }
  return write_temporary(out.bytes, ".gguf");
}

}  // namespace les

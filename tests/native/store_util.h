// GGUF files of any content, right or wrong, for the tests of the store.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "store/gguf.h"
#include "tiny_gguf.h"

namespace les {

class ByteWriter {
 public:
  void u32(uint32_t v) { put(&v, sizeof(v)); }
  void u64(uint64_t v) { put(&v, sizeof(v)); }
  void text(const std::string& s) {
    u64(s.size());
    put(s.data(), s.size());
  }
  void put(const void* data, size_t n) {
    if (n == 0) return;
    const size_t at = bytes.size();
    bytes.resize(at + n);
    std::memcpy(bytes.data() + at, data, n);
  }
  std::vector<uint8_t> bytes;
};

struct TestKey {
  std::string name;
  GgufType type = GgufType::kU8;
  std::vector<uint8_t> value;  // as it lies in the file
};

struct TestTensor {
  std::string name;
  std::vector<uint64_t> shape;
  uint64_t size_bytes = 0;
  uint32_t type = 0;
  uint64_t offset_shift = 0;  // added to the right offset
};

template <typename T>
TestKey number_key(const std::string& name, GgufType type, T value) {
  ByteWriter out;
  out.put(&value, sizeof(T));
  return {name, type, out.bytes};
}

inline TestKey text_key(const std::string& name, const std::string& text) {
  ByteWriter out;
  out.text(text);
  return {name, GgufType::kString, out.bytes};
}

template <typename T>
TestKey array_key(const std::string& name, GgufType element, const std::vector<T>& values) {
  ByteWriter out;
  out.u32(static_cast<uint32_t>(element));
  out.u64(values.size());
  out.put(values.data(), values.size() * sizeof(T));
  return {name, GgufType::kArray, out.bytes};
}

// data_start: where tensor data begins. Tensor i is filled with the byte i + 1.
inline std::vector<uint8_t> make_gguf(const std::vector<TestKey>& keys, const std::vector<TestTensor>& tensors,
                                      uint64_t alignment = 32, uint64_t* data_start = nullptr) {
  ByteWriter out;
  out.put("GGUF", 4);
  out.u32(3);
  out.u64(tensors.size());
  out.u64(keys.size());
  for (const TestKey& key : keys) {
    out.text(key.name);
    out.u32(static_cast<uint32_t>(key.type));
    out.put(key.value.data(), key.value.size());
  }
  uint64_t at = 0;
  for (const TestTensor& tensor : tensors) {
    out.text(tensor.name);
    out.u32(static_cast<uint32_t>(tensor.shape.size()));
    for (const uint64_t dim : tensor.shape) out.u64(dim);
    out.u32(tensor.type);
    out.u64(at + tensor.offset_shift);
    at += align_up(tensor.size_bytes, alignment);
  }
  out.bytes.resize(align_up(out.bytes.size(), alignment));
  if (data_start != nullptr) *data_start = out.bytes.size();
  uint8_t fill = 1;
  for (const TestTensor& tensor : tensors) {
    out.bytes.insert(out.bytes.end(), tensor.size_bytes, fill++);
    out.bytes.resize(align_up(out.bytes.size(), alignment));
  }
  return out.bytes;
}

// One temporary file, written again and again; removed at the end.
class TestFile {
 public:
  explicit TestFile(const char* suffix = ".gguf") : path_(write_temporary({0}, suffix)) {}
  ~TestFile() { std::remove(path_.c_str()); }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;

  const std::string& write(const std::vector<uint8_t>& bytes) const { return write(bytes, bytes.size()); }
  const std::string& write(const std::vector<uint8_t>& bytes, size_t n_bytes) const {
    std::FILE* file = std::fopen(path_.c_str(), "wb");
    std::fwrite(bytes.data(), 1, n_bytes, file);
    std::fclose(file);
    return path_;
  }
  Result<std::shared_ptr<GgufFile>> open(const std::vector<uint8_t>& bytes) const { return open_gguf(write(bytes)); }

 private:
  std::string path_;
};

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace les

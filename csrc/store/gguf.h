// GGUF v2 and v3 files, one or several shards, `.gguf` and `.les` alike: metadata and where each tensor lies.
// Everything in the file is untrusted: counts, lengths and offsets are checked against the file's size before use.
// Reads the headers only; never tensor data. Thread-safety: immutable after open_gguf.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/status.h"
#include "quant/qtype.h"

namespace les {

enum class GgufType : uint32_t { kU8 = 0, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

struct GgufArray;

// One metadata value. Integers of every width are held in 64 bits; `type` keeps the stored width.
struct GgufValue {
  GgufType type = GgufType::kU8;
  std::variant<uint64_t, int64_t, double, bool, std::string, std::shared_ptr<GgufArray>> data;
};

// Homogeneous. Numbers lie in `numbers` (integers exact up to 2^63; see is_integer), text in `strings`,
// nested arrays in `arrays`.
struct GgufArray {
  GgufType element = GgufType::kU8;
  std::vector<int64_t> integers;        // integer and bool elements; u64 bit-cast
  std::vector<double> floats;           // f32 and f64 elements
  std::vector<std::string> strings;
  std::vector<GgufValue> arrays;
  size_t size() const;
};

struct TensorInfo {
  std::string name;
  QType type = QType::kF32;
  std::vector<uint64_t> shape;          // GGUF order: fastest dimension first; 1 to 4 entries
  uint32_t file_idx = 0;                // which shard
  uint64_t offset_bytes = 0;            // from the start of that shard
  uint64_t size_bytes = 0;
  uint64_t n_elements = 0;
};

class GgufFile {
 public:
  struct Shard {
    std::string path;
    uint64_t size_bytes = 0;
  };

  const std::vector<Shard>& shards() const { return shards_; }
  uint32_t version() const { return version_; }
  uint64_t alignment_bytes() const { return alignment_bytes_; }
  const std::vector<std::pair<std::string, GgufValue>>& metadata() const {
    return metadata_;
  }  // file order, first shard
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

  const GgufValue* find(std::string_view key) const;
  const TensorInfo* find_tensor(std::string_view name) const;

  // Typed look-up. Absent key: kCorrupt naming key and file. Wrong type: kCorrupt with expected and actual.
  Result<uint64_t> get_u64(std::string_view key) const;    // any integer type that is not negative
  Result<double> get_f64(std::string_view key) const;      // any number
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string> get_string(std::string_view key) const;
  // A number or an array of numbers, one per layer in some families.
  Result<std::vector<int64_t>> get_integers(std::string_view key) const;
  Result<std::vector<double>> get_floats(std::string_view key) const;
  Result<std::vector<std::string>> get_strings(std::string_view key) const;

  const std::string& path() const { return shards_.front().path; }

 private:
  friend Result<std::shared_ptr<GgufFile>> open_gguf(const std::string& path);
  friend class GgufBuilder;
  std::vector<Shard> shards_;
  uint32_t version_ = 0;
  uint64_t alignment_bytes_ = 32;
  std::vector<std::pair<std::string, GgufValue>> metadata_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t> key_idx_;
  std::unordered_map<std::string, size_t> tensor_idx_;
};

// path: the file, any shard of a split model (name-00001-of-000NN.gguf), or a folder that holds exactly one model.
Result<std::shared_ptr<GgufFile>> open_gguf(const std::string& path);

}  // namespace les

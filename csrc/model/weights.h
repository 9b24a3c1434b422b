// Views of a model's trunk weights, and the binder through which a family says which tensors it needs.
// Binding checks names, shapes and types and reads nothing; the engine then loads what was bound and fills the views.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "quant/qtype.h"
#include "store/gguf.h"

namespace les {

// n_out rows of n_in weights. data is null until the engine has loaded the trunk.
struct Matrix {
  QType type = QType::kF32;
  const uint8_t* data = nullptr;
  int n_in = 0, n_out = 0;
  size_t row_bytes = 0;
  explicit operator bool() const { return n_out > 0; }
};

// Small float weights: norms, biases, per-head numbers. Converted to float when loaded.
struct Vector {
  const float* data = nullptr;
  int n = 0;
  explicit operator bool() const { return n > 0; }
};

// One tensor to load, and where views of it want to point.
struct BoundTensor {
  const TensorInfo* info = nullptr;
  bool to_float = false;
  uint64_t memory_bytes = 0;        // in the trunk
  std::vector<const uint8_t**> raw_targets;
  std::vector<const float**> float_targets;
};

class WeightBinder {
 public:
  explicit WeightBinder(const GgufFile& file) : file_(file) {}

  const GgufFile& file() const { return file_; }
  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }

  // The view must stay where it is until the engine has loaded the trunk.
  Status matrix(const std::string& name, int n_in, int n_out, Matrix* view);
  // n_matrices of them in one tensor [n_in, n_out, n_matrices]; the view has all their rows below one another.
  Status matrices(const std::string& name, int n_in, int n_out, int n_matrices, Matrix* view);
  // Any shape with n values in all.
  Status vector(const std::string& name, int n, Vector* view);
  // Absent: leaves the view empty.
  Status optional_vector(const std::string& name, int n, Vector* view);

  const std::vector<BoundTensor>& tensors() const { return tensors_; }
  uint64_t trunk_bytes() const;
  // Memory for tables that the family makes from loaded weights; planned with the trunk, not part of its buffer.
  void reserve(uint64_t size_bytes) { derived_bytes_ += size_bytes; }
  uint64_t derived_bytes() const { return derived_bytes_; }

 private:
  Result<BoundTensor*> bind(const std::string& name, bool to_float);
  const GgufFile& file_;
  std::vector<BoundTensor> tensors_;
  uint64_t derived_bytes_ = 0;
  std::unordered_map<std::string, size_t> idx_;
};

// "blk.<layer>.<suffix>"
std::string block_name(int layer, const char* suffix);

}  // namespace les

// Where each routed expert's weights lie: one record of a `.les` file, or three extents of a plain GGUF file.
// Pure look-up over an open GgufFile; reads nothing itself. Thread-safety: immutable after open_expert_store.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/gguf.h"

namespace les {

struct ExpertKey {
  uint32_t layer = 0;   // block number, as in tensor names
  uint32_t expert = 0;
  friend bool operator==(const ExpertKey&, const ExpertKey&) = default;
};

enum Slice : int { kGate = 0, kUp = 1, kDown = 2, kSliceCount = 3 };  // a fused gate_up tensor counts as kGate + kUp

struct SliceInfo {
  bool is_present = false;      // families without a gate have none
  QType type = QType::kF32;
  uint64_t n_in = 0, n_out = 0; // a slice is n_out rows of n_in weights
  uint64_t row_bytes = 0;
  uint64_t size_bytes = 0;
  uint64_t offset_bytes = 0;    // within the slot, 64-byte aligned
};

struct Extent {
  uint32_t file_idx = 0;        // shard
  uint64_t offset_bytes = 0;    // in the file
  uint64_t size_bytes = 0;
  uint64_t slot_offset_bytes = 0;  // where it goes in the slot
  int slice = -1;               // -1: the whole record
};

// All experts of one layer have the same geometry.
struct ExpertLayer {
  bool has_experts = false;
  uint32_t n_expert = 0;
  std::array<SliceInfo, kSliceCount> slices;
  uint64_t slot_bytes = 0;      // bytes an expert takes in memory, a multiple of 64
};

class ExpertStore {
 public:
  const ExpertLayer& layer(uint32_t layer) const { return layers_[layer]; }
  uint32_t n_layers() const { return static_cast<uint32_t>(layers_.size()); }
  bool is_packed() const { return is_packed_; }

  // The extents to read for one expert, in slice order; 1 for a packed store, up to 3 otherwise.
  std::vector<Extent> extents(ExpertKey key) const;
  // Expected XXH3-64 of the record; 0 and false for files without checksums.
  bool checksum(ExpertKey key, uint64_t* value) const;
  const GgufFile& file() const { return *file_; }

 private:
  friend Result<std::shared_ptr<ExpertStore>> open_expert_store(std::shared_ptr<GgufFile> file);
  std::shared_ptr<GgufFile> file_;
  bool is_packed_ = false;
  std::vector<ExpertLayer> layers_;
  std::vector<std::array<const TensorInfo*, kSliceCount>>
      tensors_;  // plain: gate, up, down; packed: [0] is the record tensor
  std::vector<std::vector<uint64_t>> checksums_;
};

// Refuses a file whose expert tensors contradict each other, naming tensor, expected and actual.
// A file without experts (a dense model) gives a store whose layers have none.
Result<std::shared_ptr<ExpertStore>> open_expert_store(std::shared_ptr<GgufFile> file);

}  // namespace les

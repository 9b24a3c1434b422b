// A libFuzzer driver: whatever the bytes are, opening them must give a file or an error, never a fault.
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -Icsrc -o fuzz_gguf
//       tools/fuzz_gguf.cc csrc/store/*.cc csrc/quant/qtype.cc csrc/base/status.cc     (one line)
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "store/expert_store.h"

namespace {

// One file for the whole run.
int scratch_file(std::string* path) {
  static std::string name = "/tmp/les-fuzz-XXXXXX";
  static const int fd = mkstemp(name.data());
  *path = name;
  return fd;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  std::string path;
  const int fd = scratch_file(&path);
  if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size_bytes, 0) != static_cast<ssize_t>(size_bytes))
    std::abort();
  auto file = les::open_gguf(path);
  if (!file.is_ok()) return 0;
  const auto store = les::open_expert_store(*file);
  if (!store.is_ok()) return 0;
  const auto& shards = (*file)->shards();
  for (uint32_t l = 0; l < (*store)->n_layers(); ++l) {
    const les::ExpertLayer& layer = (*store)->layer(l);
    for (uint32_t e = 0; layer.has_experts && e < layer.n_expert; ++e) {
      for (const les::Extent& extent : (*store)->extents({l, e})) {
        // Reading where a store says must stay inside the file and the slot.
        const uint64_t end = extent.offset_bytes + extent.size_bytes;
        if (end < extent.offset_bytes || end > shards[extent.file_idx].size_bytes) std::abort();
        if (extent.slot_offset_bytes + extent.size_bytes > layer.slot_bytes) std::abort();
      }
    }
  }
  return 0;
}

#include "engine/trunk.h"

#include "quant/codec.h"

namespace les {

Result<Buffer> load_trunk(const WeightBinder& binder, const OpenFiles& files, const ProgressFn& progress) {
  LES_ASSIGN_OR_RETURN(Buffer trunk, make_buffer(binder.trunk_bytes()));
  uint64_t at = 0, done_bytes = 0, total_bytes = 0;
  for (const BoundTensor& tensor : binder.tensors()) total_bytes += tensor.info->size_bytes;
  std::vector<uint8_t> stored;
  for (const BoundTensor& tensor : binder.tensors()) {
    const TensorInfo& info = *tensor.info;
    uint8_t* to = trunk.data() + at;
    at += tensor.memory_bytes;
    if (tensor.to_float) {
      stored.resize(info.size_bytes);
      LES_RETURN_IF_ERROR(files[info.file_idx]->read_exact(info.offset_bytes, info.size_bytes, stored.data()));
      dequantizer(info.type)(stored.data(), static_cast<int64_t>(info.n_elements), reinterpret_cast<float*>(to));
    } else {
      LES_RETURN_IF_ERROR(files[info.file_idx]->read_exact(info.offset_bytes, info.size_bytes, to));
    }
    for (const uint8_t** target : tensor.raw_targets) *target = to;
    for (const float** target : tensor.float_targets) *target = reinterpret_cast<const float*>(to);
    done_bytes += info.size_bytes;
    if (progress) progress(done_bytes, total_bytes);
  }
  return trunk;
}

Result<EmbeddingRows> EmbeddingRows::make(const GgufFile& gguf, const OpenFiles& files, const Matrix* resident) {
  EmbeddingRows rows;
  rows.info_ = *gguf.find_tensor("token_embd.weight");
  if (dequantizer(rows.info_.type) == nullptr) {
    return make_error(Code::kUnsupported, "%s: token_embd.weight has type %s, which is no weight type",
                      gguf.path().c_str(), qtype_info(rows.info_.type).name);
  }
  LES_ASSIGN_OR_RETURN(rows.row_bytes_, les::row_bytes(rows.info_.type, rows.info_.shape[0]));
  rows.file_ = files[rows.info_.file_idx].get();
  rows.resident_ = resident;
  return rows;
}

Status EmbeddingRows::load(std::span<const int32_t> tokens, float* out) const {
  const DequantizeFn dequantize = dequantizer(info_.type);
  const auto d = static_cast<int64_t>(info_.shape[0]);
  std::vector<uint8_t> row(row_bytes_);
  for (const int32_t token : tokens) {
    const uint64_t offset = static_cast<uint64_t>(token) * row_bytes_;
    if (resident_ != nullptr) {
      dequantize(resident_->data + offset, d, out);
    } else {
      LES_RETURN_IF_ERROR(file_->read_exact(info_.offset_bytes + offset, row_bytes_, row.data()));
      dequantize(row.data(), d, out);
    }
    out += d;
  }
  return Status::ok();
}

}  // namespace les

#include "store/expert_store.h"

#include <algorithm>

#include "base/bytes.h"

namespace les {

namespace {

constexpr uint64_t kSliceAlignment = 64;
constexpr uint64_t kRecordAlignment = 16 * 1024;
constexpr uint64_t kFormatVersion = 1;
constexpr uint32_t kNoType = UINT32_MAX;
constexpr const char* kSliceNames[kSliceCount] = {"gate", "up", "down"};

std::string shape_text(const TensorInfo& tensor) {
  std::string text = "[";
  for (size_t i = 0; i < tensor.shape.size(); ++i) text += (i ? ", " : "") + std::to_string(tensor.shape[i]);
  return text + "]";
}

Status fill_slice(const GgufFile& file, const TensorInfo& tensor, uint64_t n_out, SliceInfo* slice) {
  slice->is_present = true;
  slice->type = tensor.type;
  slice->n_in = tensor.shape[0];
  slice->n_out = n_out;
  const auto bytes = row_bytes(tensor.type, slice->n_in);
  if (!bytes.is_ok()) {
    return make_error(Code::kCorrupt, "%s: tensor %s: %s", file.path().c_str(), tensor.name.c_str(),
                      bytes.status().message().c_str());
  }
  slice->row_bytes = *bytes;
  slice->size_bytes = *bytes * n_out;  // no overflow: the tensor's own size did not
  return Status::ok();
}

// Places the slices one after another and sets the slot's size.
void place_slices(ExpertLayer* layer) {
  uint64_t at = 0;
  for (SliceInfo& slice : layer->slices) {
    if (!slice.is_present) continue;
    slice.offset_bytes = at;
    at = align_up(at + slice.size_bytes, kSliceAlignment);
  }
  layer->slot_bytes = at;
}

std::string block_key(uint32_t layer, const char* name) { return "les.blk." + std::to_string(layer) + "." + name; }

// blk.<N>.<rest>, without leading zeros; false for other names.
bool parse_block_name(const std::string& name, uint32_t* layer, std::string* rest) {
  if (name.rfind("blk.", 0) != 0) return false;
  size_t at = 4;
  uint64_t number = 0;
  while (at < name.size() && name[at] >= '0' && name[at] <= '9' && number < 1'000'000)
    number = number * 10 + static_cast<uint64_t>(name[at++] - '0');
  if (name[4] == '0' && at > 5) return false;  // blk.07 is another name than blk.7
  if (at == 4 || at >= name.size() || name[at] != '.' || number >= 100'000) return false;
  *layer = static_cast<uint32_t>(number);
  *rest = name.substr(at + 1);
  return true;
}

}  // namespace

// Reads one layer's geometry, from a plain file's tensors or a packed file's keys.
class ExpertStoreBuilder {
 public:
  using Tensors = std::array<const TensorInfo*, kSliceCount>;

  explicit ExpertStoreBuilder(const GgufFile& file) : file_(file) {}

  Status plain_layer(uint32_t layer, const Tensors& tensors, bool is_fused, ExpertLayer* out) {
    const TensorInfo* any = tensors[kUp] != nullptr ? tensors[kUp] : tensors[kDown];
    if (tensors[kUp] == nullptr || tensors[kDown] == nullptr) {
      return make_error(Code::kCorrupt, "%s: layer %u has tensor %s but no %s", file_.path().c_str(), layer,
                        any != nullptr ? any->name.c_str() : tensors[kGate]->name.c_str(),
                        tensors[kUp] == nullptr ? "ffn_up_exps" : "ffn_down_exps");
    }
    out->has_experts = true;
    for (int i = 0; i < kSliceCount; ++i) {
      const TensorInfo* tensor = tensors[static_cast<size_t>(i)];
      if (tensor == nullptr) continue;
      const uint64_t n_expert = tensor->shape.size() == 3 ? tensor->shape[2] : 0;
      if (n_expert == 0 || n_expert > 65536 || (out->n_expert != 0 && n_expert != out->n_expert)) {
        return make_error(Code::kCorrupt, "%s: tensor %s has shape %s; expected three dimensions, the last %u",
                          file_.path().c_str(), tensor->name.c_str(), shape_text(*tensor).c_str(),
                          std::max(1u, out->n_expert));
      }
      out->n_expert = static_cast<uint32_t>(n_expert);
      const bool is_half = is_fused && i != kDown;
      if (is_half && tensor->shape[1] % 2 != 0) {
        return make_error(Code::kCorrupt, "%s: tensor %s has %llu rows; expected gate and up, an even number",
                          file_.path().c_str(), tensor->name.c_str(),
                          static_cast<unsigned long long>(tensor->shape[1]));
      }
      LES_RETURN_IF_ERROR(
          fill_slice(file_, *tensor, tensor->shape[1] / (is_half ? 2 : 1), &out->slices[static_cast<size_t>(i)]));
    }
    LES_RETURN_IF_ERROR(check_shapes(layer, *out));
    place_slices(out);
    return Status::ok();
  }

  Status packed_layer(uint32_t layer, const TensorInfo& records, ExpertLayer* out, std::vector<uint64_t>* checksums) {
    if (records.type != QType::kI8 || records.shape.size() > 2) {
      return make_error(Code::kCorrupt, "%s: tensor %s has type %s and shape %s; expected I8 [record bytes, experts]",
                        file_.path().c_str(), records.name.c_str(), qtype_info(records.type).name,
                        shape_text(records).c_str());
    }
    const uint64_t record_bytes = records.shape[0];
    const uint64_t n_expert = records.shape.size() > 1 ? records.shape[1] : 1;
    if (record_bytes % kRecordAlignment != 0 || records.offset_bytes % kRecordAlignment != 0 || n_expert > 65536) {
      return make_error(Code::kCorrupt, "%s: tensor %s: records of %llu bytes at %llu; expected multiples of %llu",
                        file_.path().c_str(), records.name.c_str(), static_cast<unsigned long long>(record_bytes),
                        static_cast<unsigned long long>(records.offset_bytes),
                        static_cast<unsigned long long>(kRecordAlignment));
    }
    out->has_experts = true;
    out->n_expert = static_cast<uint32_t>(n_expert);
    LES_ASSIGN_OR_RETURN(const auto types, numbers(layer, "types", kSliceCount));
    LES_ASSIGN_OR_RETURN(const auto offsets, numbers(layer, "offsets", kSliceCount));
    LES_ASSIGN_OR_RETURN(const auto n_in, numbers(layer, "n_in", kSliceCount));
    LES_ASSIGN_OR_RETURN(const auto n_out, numbers(layer, "n_out", kSliceCount));
    LES_ASSIGN_OR_RETURN(const auto sums, numbers(layer, "checksums", n_expert));
    checksums->assign(sums.begin(), sums.end());
    uint64_t last_end = 0;
    for (size_t i = 0; i < kSliceCount; ++i) {
      if (static_cast<uint32_t>(types[i]) == kNoType) continue;
      LES_RETURN_IF_ERROR(packed_slice(layer, i, static_cast<uint64_t>(types[i]), static_cast<uint64_t>(n_in[i]),
                                       static_cast<uint64_t>(n_out[i]), static_cast<uint64_t>(offsets[i]), record_bytes,
                                       &last_end, &out->slices[i]));
    }
    out->slot_bytes = record_bytes;
    if (!out->slices[kUp].is_present || !out->slices[kDown].is_present) {
      return make_error(Code::kCorrupt, "%s: layer %u has no up or no down slice", file_.path().c_str(), layer);
    }
    return check_shapes(layer, *out);
  }

 private:
  Status check_shapes(uint32_t layer, const ExpertLayer& l) const {
    const SliceInfo &gate = l.slices[kGate], &up = l.slices[kUp], &down = l.slices[kDown];
    if (down.n_in != up.n_out || (gate.is_present && (gate.n_in != up.n_in || gate.n_out != up.n_out))) {
      return make_error(Code::kCorrupt,
                        "%s: layer %u: gate %llu -> %llu, up %llu -> %llu, down %llu -> %llu do not fit together",
                        file_.path().c_str(), layer, static_cast<unsigned long long>(gate.n_in),
                        static_cast<unsigned long long>(gate.n_out), static_cast<unsigned long long>(up.n_in),
                        static_cast<unsigned long long>(up.n_out), static_cast<unsigned long long>(down.n_in),
                        static_cast<unsigned long long>(down.n_out));
    }
    return Status::ok();
  }

  Status packed_slice(uint32_t layer, size_t i, uint64_t type, uint64_t n_in, uint64_t n_out, uint64_t offset,
                      uint64_t record_bytes, uint64_t* last_end, SliceInfo* slice) const {
    const QTypeInfo* info = type <= UINT32_MAX ? qtype_info(static_cast<uint32_t>(type)) : nullptr;
    if (info == nullptr || !info->is_weight) {
      return make_error(Code::kUnsupported, "%s: layer %u: %s has quant type %llu, which is unknown",
                        file_.path().c_str(), layer, kSliceNames[i], static_cast<unsigned long long>(type));
    }
    slice->is_present = true;
    slice->type = info->id;
    slice->n_in = n_in;
    slice->n_out = n_out;
    slice->offset_bytes = offset;
    const auto bytes = row_bytes(info->id, n_in);
    uint64_t end = 0;
    const bool fits = n_in > 0 && n_out > 0 && bytes.is_ok() && checked_mul(*bytes, n_out, &slice->size_bytes) &&
                      checked_add(offset, slice->size_bytes, &end) && end <= record_bytes && offset >= *last_end &&
                      offset % kSliceAlignment == 0;
    if (!fits) {
      return make_error(Code::kCorrupt,
                        "%s: layer %u: %s of %llu x %llu %s at %llu does not fit into a record of %llu bytes",
                        file_.path().c_str(), layer, kSliceNames[i], static_cast<unsigned long long>(n_in),
                        static_cast<unsigned long long>(n_out), info->name, static_cast<unsigned long long>(offset),
                        static_cast<unsigned long long>(record_bytes));
    }
    slice->row_bytes = *bytes;
    *last_end = end;
    return Status::ok();
  }

  Result<std::vector<int64_t>> numbers(uint32_t layer, const char* name, uint64_t count) const {
    const std::string key = block_key(layer, name);
    LES_ASSIGN_OR_RETURN(auto values, file_.get_integers(key));
    if (values.size() != count) {
      return make_error(Code::kCorrupt, "%s: %s has %zu entries; expected %llu", file_.path().c_str(), key.c_str(),
                        values.size(), static_cast<unsigned long long>(count));
    }
    return values;
  }

  const GgufFile& file_;
};

namespace {

int slice_of(const std::string& rest) {
  if (rest == "ffn_gate_exps.weight") return kGate;
  if (rest == "ffn_up_exps.weight") return kUp;
  if (rest == "ffn_down_exps.weight") return kDown;
  return -1;
}

// ffn_gate.E.weight and its like: one tensor an expert.
bool is_single_expert(const std::string& rest) {
  for (const char* prefix : {"ffn_gate.", "ffn_up.", "ffn_down."}) {
    if (rest.rfind(prefix, 0) != 0) continue;
    const size_t from = std::string(prefix).size(), end = rest.find_first_not_of("0123456789", from);
    return end != from && end != std::string::npos && rest.compare(end, std::string::npos, ".weight") == 0;
  }
  return false;
}

struct FoundLayer {
  ExpertStoreBuilder::Tensors tensors{};
  const TensorInfo* records = nullptr;
  const TensorInfo* single_expert = nullptr;
  bool is_fused = false, has_separate = false;
};

std::vector<FoundLayer> find_layers(const GgufFile& file) {
  std::vector<FoundLayer> found;
  for (const TensorInfo& tensor : file.tensors()) {
    uint32_t layer = 0;
    std::string rest;
    if (!parse_block_name(tensor.name, &layer, &rest)) continue;
    if (layer >= found.size()) found.resize(layer + 1);
    if (rest == "experts") {
      found[layer].records = &tensor;
    } else if (rest == "ffn_gate_up_exps.weight") {
      found[layer].is_fused = true;
      found[layer].tensors[kGate] = found[layer].tensors[kUp] = &tensor;
    } else if (slice_of(rest) >= 0) {
      found[layer].tensors[static_cast<size_t>(slice_of(rest))] = &tensor;
      found[layer].has_separate |= slice_of(rest) != kDown;
    } else if (is_single_expert(rest)) {
      found[layer].single_expert = &tensor;
    }
  }
  return found;
}

}  // namespace

Result<std::shared_ptr<ExpertStore>> open_expert_store(std::shared_ptr<GgufFile> file) {
  auto store = std::make_shared<ExpertStore>();
  store->file_ = file;
  store->is_packed_ = file->find("les.version") != nullptr;
  if (store->is_packed_) {
    LES_ASSIGN_OR_RETURN(const uint64_t version, file->get_u64("les.version"));
    if (version != kFormatVersion) {
      return make_error(Code::kUnsupported, "%s: les format version %llu; known: %llu", file->path().c_str(),
                        static_cast<unsigned long long>(version), static_cast<unsigned long long>(kFormatVersion));
    }
  }
  const std::vector<FoundLayer> found = find_layers(*file);
  store->layers_.resize(found.size());
  store->tensors_.resize(found.size());
  store->checksums_.resize(found.size());
  ExpertStoreBuilder builder(*file);
  for (uint32_t l = 0; l < found.size(); ++l) {
    const FoundLayer& layer = found[l];
    if (layer.single_expert != nullptr) {
      return make_error(Code::kUnsupported,
                        "%s: tensor %s: one tensor an expert is an old form; convert the model again",
                        file->path().c_str(), layer.single_expert->name.c_str());
    }
    if (layer.is_fused && layer.has_separate) {
      return make_error(Code::kCorrupt, "%s: layer %u has ffn_gate_up_exps and separate gate or up experts",
                        file->path().c_str(), l);
    }
    if (store->is_packed_ && layer.records != nullptr) {
      store->tensors_[l] = {layer.records, nullptr, nullptr};
      LES_RETURN_IF_ERROR(builder.packed_layer(l, *layer.records, &store->layers_[l], &store->checksums_[l]));
    } else if (layer.tensors != ExpertStoreBuilder::Tensors{}) {
      if (store->is_packed_) {
        return make_error(Code::kCorrupt, "%s: layer %u of a packed file has unpacked experts", file->path().c_str(),
                          l);
      }
      store->tensors_[l] = layer.tensors;
      LES_RETURN_IF_ERROR(builder.plain_layer(l, layer.tensors, layer.is_fused, &store->layers_[l]));
    }
  }
  return store;
}

std::vector<Extent> ExpertStore::extents(ExpertKey key) const {
  const ExpertLayer& layer = layers_[key.layer];
  const auto& tensors = tensors_[key.layer];
  if (is_packed_) {
    return {{tensors[0]->file_idx, tensors[0]->offset_bytes + key.expert * layer.slot_bytes, layer.slot_bytes, 0, -1}};
  }
  std::vector<Extent> extents;
  const bool is_fused = tensors[kGate] != nullptr && tensors[kGate] == tensors[kUp];
  for (int i = 0; i < kSliceCount; ++i) {
    const SliceInfo& slice = layer.slices[static_cast<size_t>(i)];
    if (!slice.is_present) continue;
    const TensorInfo& tensor = *tensors[static_cast<size_t>(i)];
    // In a fused tensor an expert is its gate rows, then its up rows.
    const uint64_t stride = is_fused && i != kDown ? 2 * slice.size_bytes : slice.size_bytes;
    const uint64_t within = is_fused && i == kUp ? slice.size_bytes : 0;
    extents.push_back(
        {tensor.file_idx, tensor.offset_bytes + key.expert * stride + within, slice.size_bytes, slice.offset_bytes, i});
  }
  return extents;
}

bool ExpertStore::checksum(ExpertKey key, uint64_t* value) const {
  *value = 0;
  if (!is_packed_ || checksums_[key.layer].empty()) return false;
  *value = checksums_[key.layer][key.expert];
  return true;
}

}  // namespace les

#include "model/weights.h"

#include "base/bytes.h"

namespace les {

namespace {

constexpr uint64_t kTrunkAlignment = 64;

std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// Trailing dimensions of one do not count.
bool same_shape(const std::vector<uint64_t>& actual, const std::vector<uint64_t>& expected) {
  for (size_t i = 0; i < std::max(actual.size(), expected.size()); ++i) {
    if ((i < actual.size() ? actual[i] : 1) != (i < expected.size() ? expected[i] : 1)) return false;
  }
  return true;
}

}  // namespace

std::string block_name(int layer, const char* suffix) { return "blk." + std::to_string(layer) + "." + suffix; }

Result<BoundTensor*> WeightBinder::bind(const std::string& name, bool to_float) {
  const TensorInfo* info = file_.find_tensor(name);
  if (info == nullptr) {
    return make_error(Code::kCorrupt, "%s: tensor %s is missing", file_.path().c_str(), name.c_str());
  }
  const QTypeInfo& type = qtype_info(info->type);
  if (!type.is_weight) {
    return make_error(Code::kUnsupported, "%s: tensor %s has type %s, which is no weight type", file_.path().c_str(),
                      name.c_str(), type.name);
  }
  const std::string key = name + (to_float ? "/f32" : "");
  const auto found = idx_.find(key);
  if (found != idx_.end()) return &tensors_[found->second];
  idx_[key] = tensors_.size();
  BoundTensor& bound = tensors_.emplace_back();
  bound.info = info;
  bound.to_float = to_float;
  bound.memory_bytes = align_up(to_float ? info->n_elements * sizeof(float) : info->size_bytes, kTrunkAlignment);
  return &bound;
}

Status WeightBinder::matrix(const std::string& name, int n_in, int n_out, Matrix* view) {
  return matrices(name, n_in, n_out, 1, view);
}

Status WeightBinder::matrices(const std::string& name, int n_in, int n_out, int n_matrices, Matrix* view) {
  LES_ASSIGN_OR_RETURN(BoundTensor * bound, bind(name, false));
  std::vector<uint64_t> expected = {static_cast<uint64_t>(n_in), static_cast<uint64_t>(n_out)};
  if (n_matrices > 1) expected.push_back(static_cast<uint64_t>(n_matrices));
  if (!same_shape(bound->info->shape, expected)) {
    return make_error(Code::kCorrupt, "%s: tensor %s has shape %s; expected %s", file_.path().c_str(), name.c_str(),
                      shape_text(bound->info->shape).c_str(), shape_text(expected).c_str());
  }
  LES_ASSIGN_OR_RETURN(const uint64_t bytes, row_bytes(bound->info->type, static_cast<uint64_t>(n_in)));
  *view = Matrix{bound->info->type, nullptr, n_in, n_out * n_matrices, bytes};
  bound->raw_targets.push_back(&view->data);
  return Status::ok();
}

Status WeightBinder::vector(const std::string& name, int n, Vector* view) {
  LES_ASSIGN_OR_RETURN(BoundTensor * bound, bind(name, true));
  if (bound->info->n_elements != static_cast<uint64_t>(n)) {
    return make_error(Code::kCorrupt, "%s: tensor %s has %llu values, shape %s; expected %d", file_.path().c_str(),
                      name.c_str(), static_cast<unsigned long long>(bound->info->n_elements),
                      shape_text(bound->info->shape).c_str(), n);
  }
  *view = Vector{nullptr, n};
  bound->float_targets.push_back(&view->data);
  return Status::ok();
}

Status WeightBinder::optional_vector(const std::string& name, int n, Vector* view) {
  return has(name) ? vector(name, n, view) : Status::ok();
}

uint64_t WeightBinder::trunk_bytes() const {
  uint64_t sum = 0;
  for (const BoundTensor& tensor : tensors_) sum += tensor.memory_bytes;
  return sum;
}

}  // namespace les

#include "store/gguf.h"

#include <algorithm>

namespace les {

namespace {

const char* type_name(GgufType type) {
  constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                    "bool", "string", "array", "u64", "i64", "f64"};
  const auto i = static_cast<size_t>(type);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}

}  // namespace

size_t GgufArray::size() const { return std::max({integers.size(), floats.size(), strings.size(), arrays.size()}); }

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = key_idx_.find(std::string(key));
  return found == key_idx_.end() ? nullptr : &metadata_[found->second].second;
}

const TensorInfo* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensor_idx_.find(std::string(name));
  return found == tensor_idx_.end() ? nullptr : &tensors_[found->second];
}

namespace {

Status missing(const GgufFile& file, std::string_view key) {
  return make_error(Code::kCorrupt, "%s: key %s is missing", file.path().c_str(), std::string(key).c_str());
}

Status wrong_type(const GgufFile& file, std::string_view key, const GgufValue& value, const char* expected) {
  return make_error(Code::kCorrupt, "%s: key %s is of type %s; expected %s", file.path().c_str(),
                    std::string(key).c_str(), type_name(value.type), expected);
}

}  // namespace

Result<uint64_t> GgufFile::get_u64(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(*this, key);
  if (const auto* u = std::get_if<uint64_t>(&value->data)) return *u;
  if (const auto* i = std::get_if<int64_t>(&value->data); i != nullptr && *i >= 0) return static_cast<uint64_t>(*i);
  return wrong_type(*this, key, *value, "an integer that is not negative");
}

Result<double> GgufFile::get_f64(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(*this, key);
  if (const auto* d = std::get_if<double>(&value->data)) return *d;
  if (const auto* u = std::get_if<uint64_t>(&value->data)) return static_cast<double>(*u);
  if (const auto* i = std::get_if<int64_t>(&value->data)) return static_cast<double>(*i);
  return wrong_type(*this, key, *value, "a number");
}

Result<bool> GgufFile::get_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(*this, key);
  if (const auto* b = std::get_if<bool>(&value->data)) return *b;
  return wrong_type(*this, key, *value, "bool");
}

Result<std::string> GgufFile::get_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(*this, key);
  if (const auto* s = std::get_if<std::string>(&value->data)) return *s;
  return wrong_type(*this, key, *value, "string");
}

Result<std::vector<int64_t>> GgufFile::get_integers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(*this, key);
  if (const auto* u = std::get_if<uint64_t>(&value->data)) return std::vector<int64_t>{static_cast<int64_t>(*u)};
  if (const auto* i = std::get_if<int64_t>(&value->data)) return std::vector<int64_t>{*i};
  if (const auto* b = std::get_if<bool>(&value->data)) return std::vector<int64_t>{*b ? 1 : 0};
  const auto* array = std::get_if<std::shared_ptr<GgufArray>>(&value->data);
  if (array != nullptr && (*array)->integers.size() == (*array)->size()) return (*array)->integers;
  return wrong_type(*this, key, *value, "an integer or an array of integers");
}

Result<std::vector<double>> GgufFile::get_floats(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(*this, key);
  const auto* array = std::get_if<std::shared_ptr<GgufArray>>(&value->data);
  if (array == nullptr) {
    LES_ASSIGN_OR_RETURN(const double number, get_f64(key));
    return std::vector<double>{number};
  }
  if ((*array)->floats.size() == (*array)->size()) return (*array)->floats;
  if ((*array)->integers.size() == (*array)->size()) {
    return std::vector<double>((*array)->integers.begin(), (*array)->integers.end());
  }
  return wrong_type(*this, key, *value, "an array of numbers");
}

Result<std::vector<std::string>> GgufFile::get_strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(*this, key);
  const auto* array = std::get_if<std::shared_ptr<GgufArray>>(&value->data);
  if (array != nullptr && (*array)->strings.size() == (*array)->size()) return (*array)->strings;
  return wrong_type(*this, key, *value, "an array of strings");
}

}  // namespace les

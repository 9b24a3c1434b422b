// Parsing of GGUF headers. The layout of one file:
//   "GGUF" | u32 version | u64 tensors | u64 keys | keys | tensor infos | padding | tensor data
//   key:  string name | u32 type | value          array: u32 element type | u64 count | elements
//   info: string name | u32 dims | u64 dim[dims] | u32 type | u64 offset from the start of the data
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include "base/bytes.h"
#include "store/byte_reader.h"
#include "store/gguf.h"

namespace les {

namespace {

constexpr uint32_t kMaxDims = 4;
constexpr int kMaxArrayDepth = 4;
constexpr uint64_t kMaxAlignment = 1 << 20;

uint64_t element_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool: return 1;
    case GgufType::kU16:
    case GgufType::kI16: return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32: return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
    case GgufType::kString: return 8;   // a string has its length at least
    case GgufType::kArray: return 12;
  }
  return 0;
}

bool is_signed(GgufType type) {
  return type == GgufType::kI8 || type == GgufType::kI16 || type == GgufType::kI32 || type == GgufType::kI64;
}
bool is_float(GgufType type) { return type == GgufType::kF32 || type == GgufType::kF64; }

uint64_t load_unsigned(const uint8_t* from, uint64_t n_bytes) {
  uint64_t value = 0;
  std::memcpy(&value, from, n_bytes);
  return value;
}

int64_t load_signed(const uint8_t* from, uint64_t n_bytes) {
  const auto shift = static_cast<int>(64 - 8 * n_bytes);
  return static_cast<int64_t>(load_unsigned(from, n_bytes) << shift) >> shift;
}

double load_float(const uint8_t* from, GgufType type) {
  return type == GgufType::kF32 ? static_cast<double>(load_le<float>(from)) : load_le<double>(from);
}

Result<GgufType> read_type(ByteReader& in, const std::string& key) {
  LES_ASSIGN_OR_RETURN(const uint32_t id, in.number<uint32_t>("a value type"));
  if (id > static_cast<uint32_t>(GgufType::kF64)) {
    return make_error(Code::kCorrupt, "%s: key %s has value type %u; known: 0 to 12", in.path().c_str(),
                      printable(key).c_str(), id);
  }
  return static_cast<GgufType>(id);
}

Result<GgufValue> read_value(ByteReader& in, const std::string& key, GgufType type, int depth);

Result<std::shared_ptr<GgufArray>> read_array(ByteReader& in, const std::string& key, int depth) {
  auto array = std::make_shared<GgufArray>();
  LES_ASSIGN_OR_RETURN(array->element, read_type(in, key));
  const uint64_t item_bytes = element_bytes(array->element);
  LES_ASSIGN_OR_RETURN(const uint64_t n, in.count(item_bytes, "an array"));
  if (array->element == GgufType::kString) {
    array->strings.reserve(n);
    for (uint64_t i = 0; i < n; ++i) {
      LES_ASSIGN_OR_RETURN(std::string text, in.text("a string of an array"));
      array->strings.push_back(std::move(text));
    }
    return array;
  }
  if (array->element == GgufType::kArray) {
    if (depth >= kMaxArrayDepth) {
      return make_error(Code::kCorrupt, "%s: key %s nests arrays deeper than %d", in.path().c_str(),
                        printable(key).c_str(), kMaxArrayDepth);
    }
    for (uint64_t i = 0; i < n; ++i) {
      LES_ASSIGN_OR_RETURN(GgufValue value, read_value(in, key, GgufType::kArray, depth + 1));
      array->arrays.push_back(std::move(value));
    }
    return array;
  }
  std::vector<uint8_t> raw(n * item_bytes);
  LES_RETURN_IF_ERROR(in.read(raw.data(), raw.size(), "an array"));
  is_float(array->element) ? array->floats.reserve(n) : array->integers.reserve(n);
  for (uint64_t i = 0; i < n; ++i) {
    const uint8_t* at = raw.data() + i * item_bytes;
    if (is_float(array->element)) {
      array->floats.push_back(load_float(at, array->element));
    } else {
      array->integers.push_back(is_signed(array->element) ? load_signed(at, item_bytes)
                                                          : static_cast<int64_t>(load_unsigned(at, item_bytes)));
    }
  }
  return array;
}

Result<GgufValue> read_value(ByteReader& in, const std::string& key, GgufType type, int depth) {
  GgufValue value;
  value.type = type;
  if (type == GgufType::kString) {
    LES_ASSIGN_OR_RETURN(value.data, in.text("a string"));
  } else if (type == GgufType::kArray) {
    LES_ASSIGN_OR_RETURN(value.data, read_array(in, key, depth));
  } else {
    uint8_t raw[8];
    const uint64_t n_bytes = element_bytes(type);
    LES_RETURN_IF_ERROR(in.read(raw, n_bytes, "a value"));
    if (is_float(type)) {
      value.data = load_float(raw, type);
    } else if (type == GgufType::kBool) {
      value.data = raw[0] != 0;
    } else if (is_signed(type)) {
      value.data = load_signed(raw, n_bytes);
    } else {
      value.data = load_unsigned(raw, n_bytes);
    }
  }
  return value;
}

struct Head {
  uint32_t version = 0;
  uint64_t n_tensors = 0, n_keys = 0;
};

Result<Head> read_head(ByteReader& in) {
  char magic[4];
  LES_RETURN_IF_ERROR(in.read(magic, sizeof(magic), "the magic"));
  if (std::memcmp(magic, "GGUF", 4) != 0) return make_error(Code::kCorrupt, "%s: not a GGUF file", in.path().c_str());
  Head head;
  LES_ASSIGN_OR_RETURN(head.version, in.number<uint32_t>("the version"));
  if ((head.version & 0xffffu) == 0 && head.version != 0) {
    return make_error(Code::kUnsupported, "%s: a big-endian GGUF file; only little-endian ones are supported",
                      in.path().c_str());
  }
  if (head.version != 2 && head.version != 3) {
    return make_error(Code::kUnsupported, "%s: GGUF version %u; known: 2 and 3", in.path().c_str(), head.version);
  }
  LES_ASSIGN_OR_RETURN(head.n_tensors, in.count(8 + 4 + 8 + 4 + 8, "the tensor count"));
  LES_ASSIGN_OR_RETURN(head.n_keys, in.count(8 + 4 + 1, "the key count"));
  return head;
}

Result<TensorInfo> read_tensor_info(ByteReader& in) {
  TensorInfo info;
  LES_ASSIGN_OR_RETURN(info.name, in.text("a tensor name"));
  LES_ASSIGN_OR_RETURN(const uint32_t n_dims, in.number<uint32_t>("a tensor's dimensions"));
  if (n_dims < 1 || n_dims > kMaxDims) {
    return make_error(Code::kCorrupt, "%s: tensor %s has %u dimensions; expected 1 to %u", in.path().c_str(),
                      printable(info.name).c_str(), n_dims, kMaxDims);
  }
  info.n_elements = 1;
  for (uint32_t i = 0; i < n_dims; ++i) {
    LES_ASSIGN_OR_RETURN(const uint64_t dim, in.number<uint64_t>("a tensor's dimensions"));
    info.shape.push_back(dim);
    if (dim == 0 || !checked_mul(info.n_elements, dim, &info.n_elements) || info.n_elements > INT64_MAX) {
      return make_error(Code::kCorrupt, "%s: tensor %s: dimension %u is %llu, and the size overflows or is zero",
                        in.path().c_str(), printable(info.name).c_str(), i, static_cast<unsigned long long>(dim));
    }
  }
  LES_ASSIGN_OR_RETURN(const uint32_t type, in.number<uint32_t>("a tensor's type"));
  const QTypeInfo* qtype = qtype_info(type);
  if (qtype == nullptr) {
    return make_error(Code::kUnsupported, "%s: tensor %s has quant type %u, which is unknown", in.path().c_str(),
                      printable(info.name).c_str(), type);
  }
  info.type = qtype->id;
  const auto row = row_bytes(info.type, info.shape[0]);
  if (!row.is_ok()) {
    return make_error(Code::kCorrupt, "%s: tensor %s: %s", in.path().c_str(), printable(info.name).c_str(),
                      row.status().message().c_str());
  }
  if (!checked_mul(*row, info.n_elements / info.shape[0], &info.size_bytes)) {
    return make_error(Code::kCorrupt, "%s: tensor %s: its size overflows", in.path().c_str(),
                      printable(info.name).c_str());
  }
  LES_ASSIGN_OR_RETURN(info.offset_bytes, in.number<uint64_t>("a tensor's offset"));
  return info;
}

}  // namespace

// Puts the shards of one model together.
class GgufBuilder {
 public:
  explicit GgufBuilder(GgufFile* file) : file_(*file) {}

  // split.no of the last shard added, from 0.
  const std::optional<uint64_t>& split_no() const { return split_no_; }

  Status add_shard(const std::string& path) {
    LES_ASSIGN_OR_RETURN(ByteReader in, ByteReader::open(path));
    const auto file_idx = static_cast<uint32_t>(file_.shards_.size());
    file_.shards_.push_back({path, in.size_bytes()});
    LES_ASSIGN_OR_RETURN(const Head head, read_head(in));
    uint64_t alignment = 32;
    split_no_.reset();
    LES_RETURN_IF_ERROR(read_keys(in, head, file_idx, &alignment));
    const size_t first = file_.tensors_.size();
    for (uint64_t i = 0; i < head.n_tensors; ++i) {
      LES_ASSIGN_OR_RETURN(TensorInfo info, read_tensor_info(in));
      info.file_idx = file_idx;
      if (!file_.tensor_idx_.emplace(info.name, file_.tensors_.size()).second) {
        return make_error(Code::kCorrupt, "%s: tensor %s appears twice", path.c_str(), printable(info.name).c_str());
      }
      file_.tensors_.push_back(std::move(info));
    }
    if (file_idx == 0) {
      file_.version_ = head.version;
      file_.alignment_bytes_ = alignment;
    }
    return place_tensors(in, first, alignment);
  }

 private:
  Status read_keys(ByteReader& in, const Head& head, uint32_t file_idx, uint64_t* alignment) {
    std::unordered_map<std::string, size_t> seen;
    for (uint64_t i = 0; i < head.n_keys; ++i) {
      LES_ASSIGN_OR_RETURN(std::string key, in.text("a key"));
      LES_ASSIGN_OR_RETURN(const GgufType type, read_type(in, key));
      LES_ASSIGN_OR_RETURN(GgufValue value, read_value(in, key, type, 0));
      if (!seen.emplace(key, i).second) {
        return make_error(Code::kCorrupt, "%s: key %s appears twice", in.path().c_str(), printable(key).c_str());
      }
      if (key == "general.alignment") {
        const auto* number = std::get_if<uint64_t>(&value.data);
        if (number == nullptr || !is_power_of_two(*number) || *number > kMaxAlignment) {
          return make_error(Code::kCorrupt, "%s: general.alignment is no power of two up to %llu", in.path().c_str(),
                            static_cast<unsigned long long>(kMaxAlignment));
        }
        *alignment = *number;
      }
      if (key == "split.no") {
        const auto* number = std::get_if<uint64_t>(&value.data);
        const auto* with_sign = std::get_if<int64_t>(&value.data);
        if (number != nullptr) split_no_ = *number;
        if (with_sign != nullptr) split_no_ = static_cast<uint64_t>(*with_sign);
      }
      if (file_idx > 0) continue;  // the first shard speaks for all
      file_.key_idx_[key] = file_.metadata_.size();
      file_.metadata_.emplace_back(std::move(key), std::move(value));
    }
    return Status::ok();
  }

  // Offsets become absolute; every tensor must lie inside its shard and on its own.
  Status place_tensors(const ByteReader& in, size_t first, uint64_t alignment) {
    const uint64_t data_start = align_up(in.position(), alignment);
    std::vector<const TensorInfo*> order;
    for (size_t i = first; i < file_.tensors_.size(); ++i) {
      TensorInfo& info = file_.tensors_[i];
      uint64_t end = 0;
      if (info.offset_bytes % alignment != 0) {
        return make_error(Code::kCorrupt, "%s: tensor %s lies at offset %llu, not a multiple of the alignment %llu",
                          in.path().c_str(), printable(info.name).c_str(),
                          static_cast<unsigned long long>(info.offset_bytes),
                          static_cast<unsigned long long>(alignment));
      }
      if (!checked_add(info.offset_bytes, data_start, &info.offset_bytes) ||
          !checked_add(info.offset_bytes, info.size_bytes, &end) || end > in.size_bytes()) {
        return make_error(
            Code::kCorrupt, "%s: tensor %s needs %llu bytes at %llu, the file has %llu: truncated?", in.path().c_str(),
            printable(info.name).c_str(), static_cast<unsigned long long>(info.size_bytes),
            static_cast<unsigned long long>(info.offset_bytes), static_cast<unsigned long long>(in.size_bytes()));
      }
      order.push_back(&info);
    }
    std::sort(order.begin(), order.end(),
              [](const auto* a, const auto* b) { return a->offset_bytes < b->offset_bytes; });
    for (size_t i = 1; i < order.size(); ++i) {
      if (order[i - 1]->offset_bytes + order[i - 1]->size_bytes > order[i]->offset_bytes) {
        return make_error(Code::kCorrupt, "%s: tensors %s and %s overlap", in.path().c_str(),
                          printable(order[i - 1]->name).c_str(), printable(order[i]->name).c_str());
      }
    }
    return Status::ok();
  }

  GgufFile& file_;
  std::optional<uint64_t> split_no_;
};

namespace {

namespace fs = std::filesystem;

// name-00002-of-00005.gguf
struct ShardName {
  std::string stem;   // before the numbers
  int number = 0, count = 0;
  std::string extension;
};

bool parse_shard_name(const std::string& path, ShardName* name) {
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos || dot < 15) return false;
  const std::string part = path.substr(dot - 15, 15);  // "-00002-of-00005"
  if (part[0] != '-' || part.compare(6, 4, "-of-") != 0) return false;
  for (const size_t i : {1, 2, 3, 4, 5, 10, 11, 12, 13, 14}) {
    if (part[i] < '0' || part[i] > '9') return false;
  }
  name->stem = path.substr(0, dot - 15);
  name->number = std::stoi(part.substr(1, 5));
  name->count = std::stoi(part.substr(10, 5));
  name->extension = path.substr(dot);
  return true;
}

std::string shard_path(const ShardName& name, int number) {
  return name.stem + format_text("-%05d-of-%05d", number, name.count) + name.extension;
}

// The one model in a folder.
Result<std::string> model_in_folder(const std::string& path) {
  std::set<std::string> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".gguf" && extension != ".les") continue;
    ShardName name;
    const std::string file = entry.path().string();
    // The shards of a model count once, even without the first, which is then named as missing.
    found.insert(parse_shard_name(file, &name) ? shard_path(name, 1) : file);
  }
  if (error) return make_error(Code::kIo, "%s: %s", path.c_str(), error.message().c_str());
  if (found.size() != 1) {
    return make_error(Code::kNotFound, "%s: a folder with %zu models; name one file", path.c_str(), found.size());
  }
  return *found.begin();
}

}  // namespace

Result<std::shared_ptr<GgufFile>> open_gguf(const std::string& given) {
  std::string path = given;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    LES_ASSIGN_OR_RETURN(path, model_in_folder(path));
  }
  auto file = std::make_shared<GgufFile>();
  GgufBuilder builder(file.get());
  ShardName name;
  if (!parse_shard_name(path, &name)) {
    LES_RETURN_IF_ERROR(builder.add_shard(path));
    if (file->find("split.count") != nullptr) {
      LES_ASSIGN_OR_RETURN(const uint64_t count, file->get_u64("split.count"));
      if (count > 1) {
        return make_error(
            Code::kNotFound,
            "%s: one of %llu shards, but its name does not end in -00001-of-%05llu, so the others cannot be found",
            path.c_str(), static_cast<unsigned long long>(count), static_cast<unsigned long long>(count));
      }
    }
    return file;
  }
  if (name.number < 1 || name.number > name.count) {
    return make_error(Code::kCorrupt, "%s: shard %d of %d", path.c_str(), name.number, name.count);
  }
  for (int i = 1; i <= name.count; ++i) {
    const std::string shard = shard_path(name, i);
    if (!fs::exists(shard, ignored)) {
      return make_error(Code::kNotFound, "%s: shard %d of %d is missing", shard.c_str(), i, name.count);
    }
    LES_RETURN_IF_ERROR(builder.add_shard(shard));
    if (builder.split_no().has_value() && *builder.split_no() != static_cast<uint64_t>(i - 1)) {
      return make_error(Code::kCorrupt, "%s: split.no is %llu; expected %d by its name", shard.c_str(),
                        static_cast<unsigned long long>(*builder.split_no()), i - 1);
    }
  }
  if (file->find("split.count") != nullptr) {
    LES_ASSIGN_OR_RETURN(const uint64_t count, file->get_u64("split.count"));
    if (count != static_cast<uint64_t>(name.count)) {
      return make_error(Code::kCorrupt, "%s: says %llu shards, its name says %d", path.c_str(),
                        static_cast<unsigned long long>(count), name.count);
    }
  }
  if (file->find("split.tensors.count") != nullptr) {
    LES_ASSIGN_OR_RETURN(const uint64_t count, file->get_u64("split.tensors.count"));
    if (count != file->tensors().size()) {
      return make_error(Code::kCorrupt, "%s: the shards hold %zu tensors; split.tensors.count says %llu", path.c_str(),
                        file->tensors().size(), static_cast<unsigned long long>(count));
    }
  }
  return file;
}

}  // namespace les

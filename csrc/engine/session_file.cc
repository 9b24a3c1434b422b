// Saved sessions: tokens and state of one timeline, for the same model and settings.
//   "LESS" | u32 version | u64 fingerprint | u32 position | i32 tokens[position] | state pieces | u64 XXH3-64 of all
//   before
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/checksum.h"
#include "engine/session.h"

namespace les {

namespace {

constexpr char kMagic[4] = {'L', 'E', 'S', 'S'};
constexpr uint32_t kVersion = 1;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using FilePtr = std::unique_ptr<std::FILE, CloseFile>;

// Folds the pieces' checksums, so that nothing has to be held in memory at once.
struct Chain {
  uint64_t value = 0;
  void add(const void* data, uint64_t size_bytes) {
    const uint64_t pair[2] = {value, xxh3_64(data, size_bytes)};
    value = xxh3_64(pair, sizeof(pair));
  }
};

struct Header {
  char magic[4];
  uint32_t version;
  uint64_t fingerprint;
  uint32_t position;
  uint32_t kv_type;
};

}  // namespace

// Same tensors, same shapes, same cache type: a state fits no other model.
uint64_t Session::fingerprint() const {
  Chain chain;
  const GgufFile& file = engine_->file();
  for (const TensorInfo& tensor : file.tensors()) {
    // Packed and plain files of one model differ in their expert tensors only.
    if (tensor.name.find("_exps") != std::string::npos || tensor.name.find(".experts") != std::string::npos) continue;
    chain.add(tensor.name.data(), tensor.name.size());
    chain.add(tensor.shape.data(), tensor.shape.size() * sizeof(tensor.shape[0]));
    chain.add(&tensor.type, sizeof(tensor.type));
  }
  for (const LayerStateSpec& layer : state_.spec()) {
    const int numbers[] = {layer.n_kv_heads, layer.dim_k, layer.dim_v, layer.n_recurrent, layer.n_log};
    chain.add(numbers, sizeof(numbers));
  }
  return chain.value;
}

Status Session::save(const std::string& path) {
  const std::lock_guard lock(engine_->mutex_);
  if (state_.position() != position()) {
    const auto behind = std::span<const int32_t>(tokens_).subspan(static_cast<size_t>(state_.position()));
    LES_RETURN_IF_ERROR(run_tokens(behind, 0, nullptr, false));
  }
  const std::string part = path + ".part";
  FilePtr file(std::fopen(part.c_str(), "wb"));
  if (!file) return make_error(Code::kIo, "%s: cannot be written: %s", part.c_str(), std::strerror(errno));
  Chain chain;
  const auto write = [&](const void* data, uint64_t size_bytes) {
    chain.add(data, size_bytes);
    if (std::fwrite(data, 1, size_bytes, file.get()) != size_bytes) {
      return make_error(Code::kIo, "%s: write failed: %s", part.c_str(), std::strerror(errno));
    }
    return Status::ok();
  };
  Header header{
      {}, kVersion, fingerprint(), static_cast<uint32_t>(position()), static_cast<uint32_t>(state_.kv_type())};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  Status status = write(&header, sizeof(header));
  if (status.is_ok()) status = write(tokens_.data(), tokens_.size() * sizeof(int32_t));
  if (status.is_ok()) status = state_.for_each_piece(write);
  if (status.is_ok()) {
    const uint64_t sum = chain.value;
    status = write(&sum, sizeof(sum));
  }
  if (status.is_ok() && std::fflush(file.get()) != 0) {
    status = make_error(Code::kIo, "%s: write failed: %s", part.c_str(), std::strerror(errno));
  }
  file.reset();
  if (status.is_ok() && std::rename(part.c_str(), path.c_str()) != 0) {
    status = make_error(Code::kIo, "%s: cannot be renamed: %s", part.c_str(), std::strerror(errno));
  }
  if (!status.is_ok()) std::remove(part.c_str());
  return status;
}

Status Session::load(const std::string& path) {
  const std::lock_guard lock(engine_->mutex_);
  FilePtr file(std::fopen(path.c_str(), "rb"));
  if (!file) return make_error(Code::kNotFound, "%s: cannot be read: %s", path.c_str(), std::strerror(errno));
  Chain chain;
  const auto read = [&](void* data, uint64_t size_bytes) {
    const size_t got = std::fread(data, 1, size_bytes, file.get());
    if (got != size_bytes) {
      return make_error(Code::kCorrupt, "%s: ends early: wanted %llu bytes, got %zu", path.c_str(),
                        static_cast<unsigned long long>(size_bytes), got);
    }
    chain.add(data, size_bytes);
    return Status::ok();
  };
  Header header{};
  LES_RETURN_IF_ERROR(read(&header, sizeof(header)));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.version != kVersion) {
    return make_error(Code::kCorrupt, "%s: not a saved session of version %u", path.c_str(), kVersion);
  }
  if (header.fingerprint != fingerprint() || header.kv_type != static_cast<uint32_t>(state_.kv_type())) {
    return make_error(Code::kInvalidArgument, "%s: saved with another model or another kv_type", path.c_str());
  }
  if (header.position > static_cast<uint32_t>(engine_->context())) {
    return make_error(Code::kInvalidArgument, "%s: holds %u tokens; the context is %d", path.c_str(), header.position,
                      engine_->context());
  }
  std::vector<int32_t> tokens(header.position);
  LES_RETURN_IF_ERROR(read(tokens.data(), tokens.size() * sizeof(int32_t)));
  for (const int32_t token : tokens) {
    if (token < 0 || token >= engine_->config().n_vocab) {
      return make_error(Code::kCorrupt, "%s: token %d is out of range", path.c_str(), token);
    }
  }
  // The pieces are read twice: once to see that all of them are there and sound, then to take them over.
  const long pieces_at = std::ftell(file.get());
  const int old_position = state_.position();
  state_.set_position(static_cast<int>(header.position));
  std::vector<uint8_t> unused;
  Status status = state_.for_each_piece([&](void*, uint64_t size_bytes) {
    unused.resize(size_bytes);
    return read(unused.data(), size_bytes);
  });
  state_.set_position(old_position);
  LES_RETURN_IF_ERROR(status);
  const uint64_t expected = chain.value;
  uint64_t stored = 0;
  LES_RETURN_IF_ERROR(read(&stored, sizeof(stored)));
  if (stored != expected) return make_error(Code::kCorrupt, "%s: checksum does not match", path.c_str());

  checkpoints_.clear();
  drafter_rows_ = 0;
  tokens_.clear();
  state_.reset();
  state_.set_position(static_cast<int>(header.position));
  status = std::fseek(file.get(), pieces_at, SEEK_SET) == 0
               ? state_.for_each_piece(read)
               : make_error(Code::kIo, "%s: cannot be read twice: %s", path.c_str(), std::strerror(errno));
  if (status.is_ok()) status = state_.check();
  if (!status.is_ok()) {
    state_.reset();
    return status;
  }
  tokens_ = std::move(tokens);
  return Status::ok();
}

}  // namespace les

#include <cstdarg>
#include <cstdio>

#include "capi/capi.h"

namespace les::capi {

namespace {

thread_local char last_error[1024] = "";

// Status has the same order; LES_BUFFER_TOO_SMALL and LES_CONTEXT_FULL come after it.
static_assert(static_cast<int>(Code::kInvalidArgument) == LES_INVALID_ARGUMENT);
static_assert(static_cast<int>(Code::kNotFound) == LES_NOT_FOUND);
static_assert(static_cast<int>(Code::kCorrupt) == LES_CORRUPT);
static_assert(static_cast<int>(Code::kUnsupported) == LES_UNSUPPORTED);
static_assert(static_cast<int>(Code::kIo) == LES_IO);
static_assert(static_cast<int>(Code::kOutOfMemory) == LES_OUT_OF_MEMORY);
static_assert(static_cast<int>(Code::kBudget) == LES_BUDGET);
static_assert(static_cast<int>(Code::kCancelled) == LES_CANCELLED);
static_assert(static_cast<int>(Code::kInternal) == LES_INTERNAL);

// Every options structure begins with it.
size_t size_of(const void* options) {
  size_t size = 0;
  std::memcpy(&size, options, sizeof(size));
  return size;
}

}  // namespace

void copy_cut(std::string_view text, char* to, size_t size) noexcept {
  size_t n = std::min(text.size(), size - 1);
  if (n < text.size()) {
    while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;
  }
  std::memcpy(to, text.data(), n);
  to[n] = '\0';
}

les_status fail(les_status status, std::string_view message) noexcept {
  copy_cut(message, last_error, sizeof(last_error));
  return status;
}

les_status fail(les_status status, const char* format, ...) noexcept {
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  return fail(status, std::string_view(text));
}

les_status report(const Status& status) noexcept {
  if (status.is_ok()) return LES_OK;
  return fail(static_cast<les_status>(status.code()), std::string_view(status.message()));
}

les_status copy_options(const void* from, size_t known_bytes, size_t smallest_bytes, void* to) noexcept {
  const size_t size = size_of(from);
  if (size < smallest_bytes) {
    return fail(LES_INVALID_ARGUMENT, "options have struct_size %zu; their init function sets it, to %zu or more", size,
                smallest_bytes);
  }
  const auto* bytes = static_cast<const unsigned char*>(from);
  for (size_t i = known_bytes; i < size; ++i) {
    if (bytes[i] != 0) {
      return fail(LES_UNSUPPORTED, "an option at byte %zu is set, and this library knows %zu bytes of them", i,
                  known_bytes);
    }
  }
  std::memcpy(to, from, std::min(size, known_bytes));
  return LES_OK;
}

les_status init_options(void* to, size_t size, const void* defaults, size_t known_bytes,
                        size_t smallest_bytes) noexcept {
  if (size < smallest_bytes) {
    return fail(LES_INVALID_ARGUMENT, "struct_size is %zu; expected sizeof(options), %zu or more", size,
                smallest_bytes);
  }
  LES_REQUIRE(to);
  std::memset(to, 0, size);
  std::memcpy(to, defaults, std::min(size, known_bytes));
  std::memcpy(to, &size, sizeof(size));
  return LES_OK;
}

les_status copy_result(const void* from, size_t known_bytes, void* to, size_t size) noexcept {
  if (size > known_bytes) std::memset(static_cast<char*>(to) + known_bytes, 0, size - known_bytes);
  std::memcpy(to, from, std::min(size, known_bytes));
  return LES_OK;
}

les_status copy_text(std::string_view text, char* buffer, size_t capacity, size_t* n_bytes) noexcept {
  LES_REQUIRE(n_bytes);
  *n_bytes = text.size();
  if (buffer == nullptr) return LES_OK;
  if (capacity <= text.size()) {
    return fail(LES_BUFFER_TOO_SMALL, "a text of %zu bytes and its NUL do not fit into %zu", text.size(), capacity);
  }
  std::memcpy(buffer, text.data(), text.size());
  buffer[text.size()] = '\0';
  return LES_OK;
}

}  // namespace les::capi

int32_t les_api_version(void) { return LES_API_VERSION; }

const char* les_version(void) { return LES_VERSION; }

const char* les_status_name(les_status status) {
  if (status == LES_BUFFER_TOO_SMALL) return "buffer too small";
  if (status == LES_CONTEXT_FULL) return "context full";
  return les::code_name(static_cast<les::Code>(status));
}

const char* les_error_message(void) { return les::capi::last_error; }

// What the files of the C API share: handles, the last error, and the wall that no exception passes.
// Thread-safety: as les.h says of each handle.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/session.h"
#include "les.h"
#include "text/detokenizer.h"

struct les_model {
  std::shared_ptr<les::Engine> engine;
};

struct les_tokenizer {
  std::shared_ptr<const les::Tokenizer> tokenizer;
};

struct les_detokenizer {
  std::shared_ptr<const les::Tokenizer> tokenizer;
  les::Detokenizer stream;
  std::string text;  // what the last call gave
};

struct les_session {
  std::unique_ptr<les::Session> session;
  std::vector<float> logits;  // of the last eval
  bool has_logits = false;
};

namespace les::capi {

// Remembers the message for this thread. Never fails: the text is cut to a fixed size, at a character's end.
les_status fail(les_status status, std::string_view message) noexcept;
les_status fail(les_status status, const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));
les_status report(const Status& status) noexcept;

// Runs fn, which returns a les_status or a Status.
template <typename Fn>
les_status guard(Fn fn) noexcept {
  try {
    if constexpr (std::is_same_v<decltype(fn()), les_status>) {
      return fn();
    } else {
      return report(fn());
    }
  } catch (const std::bad_alloc&) {
    return fail(LES_OUT_OF_MEMORY, std::string_view("an allocation failed"));
  } catch (const std::exception& error) {
    return fail(LES_INTERNAL, std::string_view(error.what()));
  } catch (...) {
    return fail(LES_INTERNAL, std::string_view("an unknown exception"));
  }
}

// LES_REQUIRE(model): a NULL is the caller's mistake.
#define LES_REQUIRE(argument) \
  if ((argument) == nullptr) return ::les::capi::fail(LES_INVALID_ARGUMENT, "%s: " #argument " is NULL", __func__)

// Options as the library knows them, from a structure that may be shorter or longer than that.
les_status copy_options(const void* from, size_t known_bytes, size_t smallest_bytes, void* to) noexcept;
// Defaults of a structure of `size` bytes; what the library does not know is zero.
les_status init_options(void* to, size_t size, const void* defaults, size_t known_bytes,
                        size_t smallest_bytes) noexcept;
// A result of `size` bytes as the caller knows it.
les_status copy_result(const void* from, size_t known_bytes, void* to, size_t size) noexcept;

// The buffer convention of les.h.
les_status copy_text(std::string_view text, char* buffer, size_t capacity, size_t* n_bytes) noexcept;

// Cuts at a character's end; to [size] ends with a NUL.
void copy_cut(std::string_view text, char* to, size_t size) noexcept;

}  // namespace les::capi

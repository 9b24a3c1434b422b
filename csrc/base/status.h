// Status and Result: how every layer reports failure. The library never prints, exits or throws on bad input.
// Thread-safety: values; copy them freely.
#pragma once

#include <cstdarg>
#include <optional>
#include <string>
#include <utility>

namespace les {

enum class Code : int {
  kOk = 0,
  kInvalidArgument,  // the caller's mistake
  kNotFound,         // no such file, tensor or key
  kCorrupt,          // a file contradicts itself or its checksum
  kUnsupported,      // valid, but not known to this build
  kIo,               // the operating system refused
  kOutOfMemory,      // an allocation failed
  kBudget,           // the memory budget is below the floor; the message names the floor
  kCancelled,        // stopped on request
  kInternal,         // a broken invariant
};

const char* code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status ok() { return {}; }
  bool is_ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// printf-style construction; messages name file, tensor, expected and actual.
Status make_error(Code code, const char* format, ...) __attribute__((format(printf, 2, 3)));

std::string format_text(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string format_text_v(const char* format, va_list args);

// A value or the Status that explains its absence.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}             // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}     // NOLINT(google-explicit-constructor)

  bool is_ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace les

#define LES_CONCAT_INNER(a, b) a##b
#define LES_CONCAT(a, b) LES_CONCAT_INNER(a, b)

#define LES_RETURN_IF_ERROR(expr)                 \
  do {                                            \
    ::les::Status les_status_ = (expr);           \
    if (!les_status_.is_ok()) return les_status_; \
  } while (0)

#define LES_ASSIGN_OR_RETURN_IMPL(tmp, decl, expr) \
  auto tmp = (expr);                               \
  if (!tmp.is_ok()) return tmp.status();           \
  decl = std::move(*tmp)

// LES_ASSIGN_OR_RETURN(auto file, open_file(path));
#define LES_ASSIGN_OR_RETURN(decl, expr) LES_ASSIGN_OR_RETURN_IMPL(LES_CONCAT(les_result_, __LINE__), decl, expr)

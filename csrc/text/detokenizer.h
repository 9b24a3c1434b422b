// Tokens to text as they come, never half a character: bytes wait until their character is whole, and bytes that can no
// longer become one turn into U+FFFD, as Python's and browsers' decoders have it. Thread-safety: one thread.
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace les {

// Valid UTF-8 of the bytes; each maximal piece of an invalid sequence becomes one U+FFFD.
// is_final false: an unfinished character at the end stays in *rest instead.
std::string repair_utf8(std::string_view bytes, bool is_final, std::string* rest);

class Detokenizer {
 public:
  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool show_control = false)
      : tokenizer_(std::move(tokenizer)), show_control_(show_control) {}

  std::string add(int32_t id);
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool show_control_;
  bool is_first_ = true;
  std::string pending_;
};

}  // namespace les

#include "text/detokenizer.h"

#include "text/unicode.h"

namespace les {

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Length of the start of a character at text[at] that more bytes could still complete; 0 when none could.
size_t unfinished_length(std::string_view text, size_t at) {
  static constexpr std::string_view kFillers[] = {"\x80", "\xa0", "\x90", "\x8f"};
  const size_t left = text.size() - at;
  for (size_t n = std::min<size_t>(left, 3); n > 0; --n) {
    for (const std::string_view second : kFillers) {
      std::string trial(text.substr(at, n));
      while (trial.size() < 4) trial += trial.size() == 1 ? std::string(second) : std::string("\x80");
      const size_t length = utf8_length(trial, 0);
      if (length > n) return n;
    }
  }
  return 0;
}

}  // namespace

std::string repair_utf8(std::string_view bytes, bool is_final, std::string* rest) {
  std::string text;
  if (rest != nullptr) rest->clear();
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = utf8_length(bytes, at);
    if (length > 1 || static_cast<uint8_t>(bytes[at]) < 0x80) {
      text += bytes.substr(at, length);
      at += length;
      continue;
    }
    const size_t started = unfinished_length(bytes, at);
    if (started > 0 && at + started == bytes.size() && !is_final) {
      *rest = bytes.substr(at);
      break;
    }
    text += kReplacement;
    at += std::max<size_t>(1, started);
  }
  return text;
}

std::string Detokenizer::add(int32_t id) {
  const std::span<const int32_t> one(&id, 1);
  pending_ += is_first_ ? tokenizer_->decode(one, show_control_) : tokenizer_->token_bytes(id, show_control_);
  is_first_ = is_first_ && tokenizer_->is_control(id);
  std::string rest;
  std::string text = repair_utf8(pending_, false, &rest);
  pending_ = std::move(rest);
  return text;
}

std::string Detokenizer::finish() {
  std::string text = repair_utf8(pending_, true, nullptr);
  pending_.clear();
  is_first_ = true;
  return text;
}

}  // namespace les

#include "text/unicode.h"
#include <algorithm>
#include <array>
namespace les {
namespace {
CharClass look_up(uint32_t code) {
  const ClassRun* end = kClassRuns + kNClassRuns;
  const ClassRun* after =
      std::upper_bound(kClassRuns, end, code, [](uint32_t c, const ClassRun& run) { return c < run.first; });
  return after == kClassRuns ? CharClass::kNone : (after - 1)->char_class;
}
const std::array<CharClass, 0x10000>& first_plane() {
  static const std::array<CharClass, 0x10000> table = [] {
    std::array<CharClass, 0x10000> classes{};
    for (uint32_t c = 0; c < classes.size(); ++c) classes[c] = look_up(c);
    return classes;
  }();
  return table;
}
}  // namespace
CharClass char_class(uint32_t code) {
  if (code < 0x10000) return first_plane()[code];
  return code < kInvalid ? look_up(code) : CharClass::kNone;
}
bool is_space(uint32_t code) {
  if (code < 128) return code == ' ' || (code >= 9 && code <= 13);
  return code == 0x85 || char_class(code) == CharClass::kSeparator;
}
size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : uint8_t{0}; };
  const auto follows = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 1;
  if (first >= 0xe0 && first <= 0xef) {
    const bool is_short = first == 0xe0 && byte(1) < 0xa0;
    const bool is_surrogate = first == 0xed && byte(1) > 0x9f;
    return follows(1) && follows(2) && !is_short && !is_surrogate ? 3 : 1;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool is_short = first == 0xf0 && byte(1) < 0x90;
    const bool is_beyond = first == 0xf4 && byte(1) > 0x8f;
    return follows(1) && follows(2) && follows(3) && !is_short && !is_beyond ? 4 : 1;
  }
  return 1;
}
std::vector<Char> decode_utf8(std::string_view text) {
  std::vector<Char> chars;
  chars.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    const auto first = static_cast<uint8_t>(text[at]);
    uint32_t code = first;
    if (length == 1) {
      if (first >= 0x80) code = kInvalid + first;
    } else {
      code = first & (0xffu >> (length + 1));
      for (size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<uint8_t>(text[at + i]) & 0x3fu);
    }
    chars.push_back({code, static_cast<uint32_t>(at)});
    at += length;
  }
  chars.push_back({0, static_cast<uint32_t>(text.size())});
  return chars;
}
void append_utf8(uint32_t code, std::string* out) {
  const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}
int byte_token_value(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace les

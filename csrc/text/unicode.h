// UTF-8 and character classes. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace les {

enum class CharClass : uint8_t {
  kNone,
  kUpper,
  kLower,
  kOtherLetter,
  kMark,
  kNumber,
  kPunctuation,
  kSymbol,
  kSeparator,
  kControl
};
struct ClassRun {
  uint32_t first;
  CharClass char_class;
};
extern const size_t kNClassRuns;
extern const ClassRun kClassRuns[];
CharClass char_class(uint32_t code);
bool is_space(uint32_t code);
struct Char {
  uint32_t code;
  uint32_t offset;
};
constexpr uint32_t kInvalid = 0x110000;
std::vector<Char> decode_utf8(std::string_view text);
size_t utf8_length(std::string_view text, size_t at);
void append_utf8(uint32_t code, std::string* out);
// The byte that a token "<0xE2>" stands for, or -1.
int byte_token_value(std::string_view token);
}  // namespace les

// The regular expressions that pre-tokenizers are written in, and no more: alternatives of sequences of character sets
// with repetition, optional groups of alternatives, negative look-ahead on a set, and the end of the text. Matching is
// leftmost, first alternative, greedy with backtracking, as in the engines these expressions were written for.
// Thread-safety: immutable after compile_pattern.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/unicode.h"

namespace les {

// A set of characters: a union of ranges, classes and white space, possibly negated, possibly cut with another set.
struct CharSet {
  struct Range {
    uint32_t first, last;
  };
  std::vector<Range> ranges;
  uint32_t class_mask = 0;         // bit i: CharClass i
  bool has_space = false, has_non_space = false;
  bool is_negated = false;
  std::vector<CharSet> cut;        // at most one: the character must be in it too
  uint64_t ascii[2] = {0, 0};      // the answer for the first 128 characters

  bool contains(uint32_t code) const {
    return code < 128 ? (ascii[code / 64] >> (code % 64) & 1) != 0 : contains_slowly(code);
  }
  bool contains_slowly(uint32_t code) const;
};

struct PatternItem {
  enum class Kind : uint8_t { kSet, kGroup, kNotFollowedBy, kEnd };
  Kind kind = Kind::kSet;
  CharSet set;
  uint32_t min = 1, max = 1;
  std::vector<std::vector<PatternItem>> alternatives;  // kGroup
};

struct Pattern {
  std::vector<std::vector<PatternItem>> alternatives;

  // Nothing but a repeated set up to the end of the text, "[...]+$".
  bool is_tail() const {
    return alternatives.size() == 1 && alternatives[0].size() == 2 &&
           alternatives[0][0].kind == PatternItem::Kind::kSet && alternatives[0][0].min == 1 &&
           alternatives[0][0].max == UINT32_MAX && alternatives[0][1].kind == PatternItem::Kind::kEnd;
  }

  // Characters matched at chars[at], or 0. `end` is the index past the last character that may be seen.
  size_t match(const std::vector<Char>& chars, size_t at, size_t end) const;
};

// UTF-8 source. Fails on syntax it does not have.
Result<Pattern> compile_pattern(std::string_view source);

}  // namespace les

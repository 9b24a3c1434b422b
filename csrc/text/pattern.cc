#include "text/pattern.h"

#include <algorithm>

namespace les {

bool CharSet::contains_slowly(uint32_t code) const {
  bool is_in = (class_mask >> static_cast<uint32_t>(char_class(code)) & 1) != 0;
  for (const Range& range : ranges) is_in = is_in || (code >= range.first && code <= range.last);
  if (has_space || has_non_space) is_in = is_in || (is_space(code) ? has_space : has_non_space);
  if (is_in == is_negated) return false;
  return cut.empty() || cut[0].contains_slowly(code);
}

namespace {

constexpr uint32_t kMany = UINT32_MAX;

uint32_t mask_of(std::initializer_list<CharClass> classes) {
  uint32_t mask = 0;
  for (const CharClass c : classes) mask |= 1u << static_cast<uint32_t>(c);
  return mask;
}

class Compiler {
 public:
  explicit Compiler(std::string_view source) : source_(source), chars_(decode_utf8(source)) {}

  Result<Pattern> compile() {
    Pattern pattern;
    LES_ASSIGN_OR_RETURN(pattern.alternatives, alternatives());
    if (!at_end()) return fail("an unexpected ')'");
    return pattern;
  }

 private:
  using Sequence = std::vector<PatternItem>;

  bool at_end() const { return at_ + 1 >= chars_.size(); }
  uint32_t peek(size_t ahead = 0) const { return at_ + ahead + 1 < chars_.size() ? chars_[at_ + ahead].code : 0; }
  bool take(uint32_t code) {
    if (at_end() || peek() != code) return false;
    ++at_;
    return true;
  }
  bool take_text(std::string_view text) {
    if (source_.substr(chars_[at_].offset, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }
  Status fail(const char* what) const {
    return make_error(Code::kInternal, "pattern '%s': %s at character %zu", std::string(source_).c_str(), what, at_);
  }

  Result<std::vector<Sequence>> alternatives() {
    std::vector<Sequence> all;
    do {
      Sequence sequence;
      while (!at_end() && peek() != '|' && peek() != ')') {
        LES_ASSIGN_OR_RETURN(PatternItem next, item());
        sequence.push_back(std::move(next));
      }
      all.push_back(std::move(sequence));
    } while (take('|'));
    return all;
  }

  Result<PatternItem> item() {
    PatternItem result;
    if (take_text("(?!")) {
      result.kind = PatternItem::Kind::kNotFollowedBy;
      LES_ASSIGN_OR_RETURN(result.set, set_or_char());
      if (!take(')')) return fail("')' expected");
      return result;
    }
    if (take_text("(?:")) {
      result.kind = PatternItem::Kind::kGroup;
      LES_ASSIGN_OR_RETURN(result.alternatives, alternatives());
      if (!take(')')) return fail("')' expected");
    } else if (take('$')) {
      result.kind = PatternItem::Kind::kEnd;
      return result;
    } else {
      LES_ASSIGN_OR_RETURN(result.set, set_or_char());
    }
    quantifier(&result);
    return result;
  }

  void quantifier(PatternItem* item) {
    if (take('?')) {
      item->min = 0;
    } else if (take('*')) {
      item->min = 0;
      item->max = kMany;
    } else if (take('+')) {
      item->max = kMany;
    } else if (peek() == '{' && peek(2) == ',' && peek(4) == '}') {
      item->min = peek(1) - '0';
      item->max = peek(3) - '0';
      at_ += 5;
    }
  }

  Result<CharSet> set_or_char() {
    CharSet set;
    if (take('[')) {
      LES_ASSIGN_OR_RETURN(set, bracket());
    } else {
      LES_RETURN_IF_ERROR(element(&set));
    }
    for (uint32_t c = 0; c < 128; ++c) {
      if (set.contains_slowly(c)) set.ascii[c / 64] |= 1ull << (c % 64);
    }
    return set;
  }

  // After '['.
  Result<CharSet> bracket() {
    CharSet set;
    set.is_negated = take('^');
    while (!at_end() && peek() != ']') {
      if (take_text("&&[")) {
        LES_ASSIGN_OR_RETURN(CharSet other, bracket());
        set.cut.push_back(std::move(other));
        continue;
      }
      LES_RETURN_IF_ERROR(element(&set));
    }
    if (!take(']')) return fail("']' expected");
    return set;
  }

  // One character, range or class into the set.
  Status element(CharSet* set) {
    if (at_end()) return fail("a character expected");
    if (take('\\')) {
      const uint32_t code = peek();
      ++at_;
      if (code == 's') {
        set->has_space = true;
      } else if (code == 'S') {
        set->has_non_space = true;
      } else if (code == 'p') {
        return property(set);
      } else {
        add_range(set, code == 'r' ? '\r' : code == 'n' ? '\n' : code == 't' ? '\t' : code);
      }
      return Status::ok();
    }
    const uint32_t code = peek();
    ++at_;
    add_range(set, code);
    return Status::ok();
  }

  void add_range(CharSet* set, uint32_t first) {
    uint32_t last = first;
    if (peek() == '-' && peek(1) != ']' && peek(1) != 0) {
      ++at_;
      if (peek() == '\\') ++at_;
      last = peek();
      ++at_;
    }
    set->ranges.push_back({first, last});
  }

  Status property(CharSet* set) {
    using C = CharClass;
    struct Entry {
      const char* name;
      uint32_t mask;
    };
    const Entry entries[] = {
        {"{Lu}", mask_of({C::kUpper})},       {"{Ll}", mask_of({C::kLower})},
        {"{Lo}", mask_of({C::kOtherLetter})}, {"{L}", mask_of({C::kUpper, C::kLower, C::kOtherLetter})},
        {"{M}", mask_of({C::kMark})},         {"{N}", mask_of({C::kNumber})},
        {"{P}", mask_of({C::kPunctuation})},  {"{S}", mask_of({C::kSymbol})}};
    for (const Entry& entry : entries) {
      if (take_text(entry.name)) {
        set->class_mask |= entry.mask;
        return Status::ok();
      }
    }
    if (take_text("{Han}")) {
      for (const CharSet::Range& range : {CharSet::Range{0x2e80, 0x2fd5},
                                          {0x3005, 0x3005},
                                          {0x3007, 0x3007},
                                          {0x3021, 0x3029},
                                          {0x3038, 0x303b},
                                          {0x3400, 0x4dbf},
                                          {0x4e00, 0x9fff},
                                          {0xf900, 0xfad9},
                                          {0x20000, 0x323af}}) {
        set->ranges.push_back(range);
      }
      return Status::ok();
    }
    return fail("an unknown property");
  }

  std::string_view source_;
  std::vector<Char> chars_;
  size_t at_ = 0;
};

constexpr size_t kNoMatch = SIZE_MAX;

// Position after items[i..] matched from `at`, or kNoMatch. Recursion is as deep as the pattern is long, never as the
// text is.
size_t match_items(const std::vector<PatternItem>& items, size_t i, const std::vector<Char>& chars, size_t at,
                   size_t end) {
  if (i == items.size()) return at;
  const PatternItem& item = items[i];
  switch (item.kind) {
    case PatternItem::Kind::kEnd: return at == end ? match_items(items, i + 1, chars, at, end) : kNoMatch;
    case PatternItem::Kind::kNotFollowedBy:
      if (at < end && item.set.contains(chars[at].code)) return kNoMatch;
      return match_items(items, i + 1, chars, at, end);
    case PatternItem::Kind::kGroup:
      for (const auto& alternative : item.alternatives) {
        const size_t after = match_items(alternative, 0, chars, at, end);
        if (after == kNoMatch) continue;
        const size_t rest = match_items(items, i + 1, chars, after, end);
        if (rest != kNoMatch) return rest;
      }
      return item.min == 0 ? match_items(items, i + 1, chars, at, end) : kNoMatch;
    case PatternItem::Kind::kSet: break;
  }
  size_t n = 0;
  while (n < item.max && at + n < end && item.set.contains(chars[at + n].code)) ++n;
  for (size_t left = n + 1; left-- > item.min;) {
    const size_t rest = match_items(items, i + 1, chars, at + left, end);
    if (rest != kNoMatch) return rest;
  }
  return kNoMatch;
}

}  // namespace

size_t Pattern::match(const std::vector<Char>& chars, size_t at, size_t end) const {
  for (const auto& alternative : alternatives) {
    const size_t after = match_items(alternative, 0, chars, at, end);
    if (after != kNoMatch && after > at) return after - at;
  }
  return 0;
}

Result<Pattern> compile_pattern(std::string_view source) { return Compiler(source).compile(); }

}  // namespace les

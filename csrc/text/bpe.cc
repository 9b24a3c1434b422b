// Byte-pair encoding from a list of merges: over bytes written as printable characters ("gpt2"), or over characters
// with bytes as the last resort ("gemma4").
#include <algorithm>
#include <array>
#include <queue>

#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace les {

namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // ▁ stands for a space

// GPT-2's alphabet: printable Latin-1 characters stand for themselves, the other bytes for characters from 256 on.
struct ByteAlphabet {
  std::array<std::string, 256> text;
  std::unordered_map<uint32_t, uint8_t> bytes;
  ByteAlphabet() {
    uint32_t spare = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool is_printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
      const uint32_t code = is_printable ? b : spare++;
      append_utf8(code, &text[b]);
      bytes[code] = static_cast<uint8_t>(b);
    }
  }
};

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

struct Merge {
  int32_t rank;
  int32_t merged;
};

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(VocabSpec spec, Pretokenizer pretokenizer)
      : Tokenizer(std::move(spec)), pretokenizer_(std::move(pretokenizer)), is_byte_level_(spec_.model == "gpt2") {
    for (size_t b = 0; b < 256; ++b) {
      byte_ids_[b] =
          token_to_id(is_byte_level_ ? byte_alphabet().text[b] : format_text("<0x%02X>", static_cast<unsigned>(b)));
    }
    merges_.reserve(spec_.merges.size());
    for (size_t i = 0; i < spec_.merges.size(); ++i) add_merge(spec_.merges[i], static_cast<int32_t>(i));
    spec_.merges.clear();
    spec_.merges.shrink_to_fit();
  }

 protected:
  void encode_plain(std::string_view text, bool, std::vector<int32_t>* out) const override {
    std::string marked;
    if (!is_byte_level_) {
      for (const char c : text) c == ' ' ? marked.append(kSpaceMark) : marked.append(1, c);
      text = marked;
    }
    size_t begin = 0;
    for (const uint32_t end : pretokenizer_.split(text)) {
      encode_word(text.substr(begin, end - begin), out);
      begin = end;
    }
  }

  // The families that need no merges for whole words are those that begin with a BOS.
  bool adds_bos_by_default() const override { return pretokenizer_.takes_whole_words; }

  std::string plain_bytes(int32_t id) const override {
    const std::string& token = spec_.tokens[static_cast<size_t>(id)];
    std::string bytes;
    if (!is_byte_level_) {
      const int byte = type_of(id) == 6 ? byte_token_value(token) : -1;
      if (byte >= 0) return std::string(1, static_cast<char>(byte));
      for (size_t at = 0; at < token.size();) {
        const bool is_mark = token.compare(at, kSpaceMark.size(), kSpaceMark) == 0;
        bytes += is_mark ? ' ' : token[at];
        at += is_mark ? kSpaceMark.size() : 1;
      }
      return bytes;
    }
    const std::vector<Char> chars = decode_utf8(token);
    for (size_t i = 0; i + 1 < chars.size(); ++i) {
      const auto found = byte_alphabet().bytes.find(chars[i].code);
      if (found != byte_alphabet().bytes.end()) {
        bytes += static_cast<char>(found->second);
      } else {
        bytes += token.substr(chars[i].offset, chars[i + 1].offset - chars[i].offset);
      }
    }
    return bytes;
  }

 private:
  // A symbol of a word that is being merged; a doubly linked list within the array.
  struct Symbol {
    uint32_t begin, end;      // bytes of the word
    int32_t id;               // token of that text, or kNoToken
    int32_t previous, next;
  };
  struct Candidate {
    int32_t rank, left, right;
    uint32_t end;             // of the right symbol when the candidate was made: it is stale when that has changed
    bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : left > other.left; }
  };

  static uint64_t pair_key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }

  // A merge whose parts or result are no tokens can never help; files carry some.
  void add_merge(const std::string& merge, int32_t rank) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos) return;
    const std::string_view left = std::string_view(merge).substr(0, space),
                           right = std::string_view(merge).substr(space + 1);
    const int32_t left_id = token_to_id(left), right_id = token_to_id(right);
    const int32_t merged = token_to_id(std::string(left) + std::string(right));
    if (left_id != kNoToken && right_id != kNoToken && merged != kNoToken) {
      merges_.emplace(pair_key(left_id, right_id), Merge{rank, merged});
    }
  }

  std::string mapped(std::string_view bytes) const {
    if (!is_byte_level_) return std::string(bytes);
    std::string text;
    for (const char c : bytes) text += byte_alphabet().text[static_cast<uint8_t>(c)];
    return text;
  }

  void encode_word(std::string_view word, std::vector<int32_t>* out) const {
    if (pretokenizer_.takes_whole_words) {
      const int32_t whole = token_to_id(mapped(word));
      if (whole != kNoToken) {
        out->push_back(whole);
        return;
      }
    }
    std::vector<Symbol> symbols;
    for (uint32_t at = 0; at < word.size();) {
      const auto length = static_cast<uint32_t>(is_byte_level_ ? 1 : utf8_length(word, at));
      const int32_t id =
          is_byte_level_ ? byte_ids_[static_cast<uint8_t>(word[at])] : token_to_id(word.substr(at, length));
      const auto i = static_cast<int32_t>(symbols.size());
      symbols.push_back({at, at + length, id, i - 1, i + 1});
      at += length;
    }
    if (symbols.empty()) return;
    symbols.back().next = -1;
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
    const auto consider = [&](int32_t left, int32_t right) {
      if (left < 0 || right < 0) return;
      const Symbol &a = symbols[static_cast<size_t>(left)], &b = symbols[static_cast<size_t>(right)];
      if (a.id == kNoToken || b.id == kNoToken) return;
      const auto found = merges_.find(pair_key(a.id, b.id));
      if (found != merges_.end()) queue.push({found->second.rank, left, right, b.end});
    };
    for (int32_t i = 0; i + 1 < static_cast<int32_t>(symbols.size()); ++i) consider(i, i + 1);
    while (!queue.empty()) {
      const Candidate best = queue.top();
      queue.pop();
      Symbol &a = symbols[static_cast<size_t>(best.left)], &b = symbols[static_cast<size_t>(best.right)];
      if (a.begin == a.end || b.begin == b.end || a.next != best.right || b.end != best.end) continue;
      const auto found = merges_.find(pair_key(a.id, b.id));
      if (found == merges_.end() || found->second.rank != best.rank) continue;
      a.id = found->second.merged;
      a.end = b.end;
      a.next = b.next;
      if (b.next >= 0) symbols[static_cast<size_t>(b.next)].previous = best.left;
      b.begin = b.end;
      consider(a.previous, best.left);
      consider(best.left, a.next);
    }
    for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next)
      emit(word, symbols[static_cast<size_t>(i)], out);
  }

  void emit(std::string_view word, const Symbol& symbol, std::vector<int32_t>* out) const {
    if (symbol.id != kNoToken) {
      out->push_back(symbol.id);
      return;
    }
    for (uint32_t at = symbol.begin; at < symbol.end; ++at) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(word[at])];
      if (id != kNoToken) {
        out->push_back(id);
      } else if (spec_.unknown != kNoToken) {
        out->push_back(spec_.unknown);
      }
    }
  }

  Pretokenizer pretokenizer_;
  bool is_byte_level_;
  std::array<int32_t, 256> byte_ids_{};
  std::unordered_map<uint64_t, Merge> merges_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> text_internal::make_bpe(VocabSpec spec) {
  Pretokenizer pretokenizer;
  if (spec.model == "gemma4") {
    LES_ASSIGN_OR_RETURN(Pattern lines, compile_pattern("[^\\n]+|[\\n]+"));
    pretokenizer.patterns.push_back(std::move(lines));
  } else {
    LES_ASSIGN_OR_RETURN(pretokenizer, make_pretokenizer(spec.pre));
  }
  return std::unique_ptr<Tokenizer>(new BpeTokenizer(std::move(spec), std::move(pretokenizer)));
}

}  // namespace les

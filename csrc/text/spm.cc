// SentencePiece-style encoding: characters join, the pair with the best score first, as long as the joint text is a
// token; what is no token in the end is written in bytes.
#include <algorithm>
#include <queue>

#include "text/tokenizer.h"
#include "text/unicode.h"

namespace les {

namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // ▁ stands for a space
constexpr int32_t kTypeByte = 6;

class SpmTokenizer final : public Tokenizer {
 public:
  explicit SpmTokenizer(VocabSpec spec) : Tokenizer(std::move(spec)), adds_space_(spec_.add_space_prefix != 0) {
    byte_ids_.resize(256);
    for (size_t b = 0; b < 256; ++b) byte_ids_[b] = token_to_id(format_text("<0x%02X>", static_cast<unsigned>(b)));
    for (const std::string& token : spec_.tokens) cuts_at_marks_ = cuts_at_marks_ && next_cut(token) == token.size();
  }

 protected:
  void encode_plain(std::string_view text, bool is_start, std::vector<int32_t>* out) const override {
    std::string marked;
    if (adds_space_ && is_start) marked += kSpaceMark;
    for (const char c : text) c == ' ' ? marked.append(kSpaceMark) : marked.append(1, c);
    std::string_view rest = marked;
    while (!rest.empty()) {
      const size_t length = cuts_at_marks_ ? next_cut(rest) : rest.size();
      encode_marked(rest.substr(0, length), out);
      rest.remove_prefix(length);
    }
  }

  std::string plain_bytes(int32_t id) const override {
    const std::string& token = spec_.tokens[static_cast<size_t>(id)];
    const int byte = type_of(id) == kTypeByte ? byte_token_value(token) : -1;
    if (byte >= 0) return std::string(1, static_cast<char>(byte));
    std::string bytes;
    for (size_t at = 0; at < token.size();) {
      const bool is_mark = token.compare(at, kSpaceMark.size(), kSpaceMark) == 0;
      bytes += is_mark ? ' ' : token[at];
      at += is_mark ? kSpaceMark.size() : 1;
    }
    return bytes;
  }

  bool adds_bos_by_default() const override { return true; }

  // The space that encoding put in front comes off again.
  std::string first_bytes(int32_t id) const override {
    std::string bytes = plain_bytes(id);
    if (adds_space_ && !bytes.empty() && bytes[0] == ' ') bytes.erase(0, 1);
    return bytes;
  }

 private:
  struct Symbol {
    uint32_t begin, end;
    int32_t previous, next;
  };
  struct Candidate {
    float score;
    int32_t left, right;
    uint32_t size;       // of both texts together: stale when it has changed
    bool operator<(const Candidate& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };

  // Where the first mark that follows something else stands, or the end. When no token reaches over such a place, the
  // words on both sides never meet.
  static size_t next_cut(std::string_view text) {
    size_t after_mark = 0;
    for (size_t at = 0; (at = text.find(kSpaceMark, at)) != std::string_view::npos; at = after_mark) {
      if (at != after_mark) return at;
      after_mark = at + kSpaceMark.size();
    }
    return text.size();
  }

  float score_of(int32_t id) const {
    const auto i = static_cast<size_t>(id);
    return i < spec_.scores.size() ? spec_.scores[i] : 0.0f;
  }

  void encode_marked(std::string_view text, std::vector<int32_t>* out) const {
    std::vector<Symbol> symbols;
    for (uint32_t at = 0; at < text.size();) {
      const auto length = static_cast<uint32_t>(utf8_length(text, at));
      const auto i = static_cast<int32_t>(symbols.size());
      symbols.push_back({at, at + length, i - 1, i + 1});
      at += length;
    }
    if (symbols.empty()) return;
    symbols.back().next = -1;
    std::priority_queue<Candidate> queue;
    const auto consider = [&](int32_t left, int32_t right) {
      if (left < 0 || right < 0) return;
      const uint32_t begin = symbols[static_cast<size_t>(left)].begin, end = symbols[static_cast<size_t>(right)].end;
      const int32_t id = token_to_id(text.substr(begin, end - begin));
      if (id != kNoToken) queue.push({score_of(id), left, right, end - begin});
    };
    for (int32_t i = 0; i + 1 < static_cast<int32_t>(symbols.size()); ++i) consider(i, i + 1);
    while (!queue.empty()) {
      const Candidate best = queue.top();
      queue.pop();
      Symbol &a = symbols[static_cast<size_t>(best.left)], &b = symbols[static_cast<size_t>(best.right)];
      if (a.begin == a.end || b.begin == b.end || a.next != best.right || b.end - a.begin != best.size) continue;
      a.end = b.end;
      a.next = b.next;
      if (b.next >= 0) symbols[static_cast<size_t>(b.next)].previous = best.left;
      b.begin = b.end;
      consider(a.previous, best.left);
      consider(best.left, a.next);
    }
    for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
      const Symbol& symbol = symbols[static_cast<size_t>(i)];
      emit(text.substr(symbol.begin, symbol.end - symbol.begin), out);
    }
  }

  void emit(std::string_view piece, std::vector<int32_t>* out) const {
    const int32_t id = token_to_id(piece);
    if (id != kNoToken) {
      out->push_back(id);
      return;
    }
    for (const char c : piece) {
      const int32_t byte_id = byte_ids_[static_cast<uint8_t>(c)];
      if (byte_id != kNoToken) {
        out->push_back(byte_id);
      } else if (spec_.unknown != kNoToken) {
        out->push_back(spec_.unknown);
        return;
      }
    }
  }

  bool adds_space_;
  bool cuts_at_marks_ = true;
  std::vector<int32_t> byte_ids_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> text_internal::make_spm(VocabSpec spec) {
  if (spec.scores.size() != spec.tokens.size()) {
    return make_error(Code::kCorrupt, "the vocabulary has %zu tokens and %zu scores", spec.tokens.size(),
                      spec.scores.size());
  }
  return std::unique_ptr<Tokenizer>(new SpmTokenizer(std::move(spec)));
}

}  // namespace les

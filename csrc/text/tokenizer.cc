#include "text/tokenizer.h"

#include <algorithm>

#include "text/unicode.h"

namespace les {

namespace {

constexpr int32_t kTypeNormal = 1, kTypeUnknown = 2, kTypeControl = 3, kTypeUserDefined = 4;

}  // namespace

Tokenizer::Tokenizer(VocabSpec spec) : spec_(std::move(spec)) {
  ids_.reserve(spec_.tokens.size());
  by_first_.resize(256);
  is_eog_.assign(spec_.tokens.size(), false);
  for (size_t i = 0; i < spec_.tokens.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string& text = spec_.tokens[i];
    ids_.emplace(text, id);   // of duplicates the first counts
    const int32_t type = type_of(id);
    if (text.empty() || (type != kTypeControl && type != kTypeUserDefined && type != kTypeUnknown)) continue;
    specials_.push_back({text, id, type == kTypeUserDefined});
  }
  std::stable_sort(specials_.begin(), specials_.end(),
                   [](const Special& a, const Special& b) { return a.text.size() > b.text.size(); });
  for (size_t i = 0; i < specials_.size(); ++i) {
    by_first_[static_cast<uint8_t>(specials_[i].text[0])].push_back(static_cast<uint32_t>(i));
  }
  const auto ends = [this](int32_t id) {
    if (id >= 0 && id < n_vocab()) is_eog_[static_cast<size_t>(id)] = true;
  };
  ends(spec_.eos);
  for (const int32_t id : spec_.more_eog) ends(id);
}

int32_t Tokenizer::type_of(int32_t id) const {
  const auto i = static_cast<size_t>(id);
  return i < spec_.token_type.size() ? spec_.token_type[i] : kTypeNormal;
}

bool Tokenizer::is_control(int32_t id) const {
  return id >= 0 && id < n_vocab() && (type_of(id) == kTypeControl || type_of(id) == kTypeUnknown);
}

bool Tokenizer::is_eog(int32_t id) const { return id >= 0 && id < n_vocab() && is_eog_[static_cast<size_t>(id)]; }

int32_t Tokenizer::token_to_id(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? kNoToken : found->second;
}

bool Tokenizer::adds_bos() const {
  return spec_.bos != kNoToken && (spec_.add_bos >= 0 ? spec_.add_bos == 1 : adds_bos_by_default());
}

bool Tokenizer::adds_eos() const { return spec_.eos != kNoToken && spec_.add_eos == 1; }

namespace {

struct Piece {
  size_t begin, end;
  int32_t id;     // kNoToken: plain text
};

}  // namespace

// The reference cuts by one special token after another, longest first; a longer one wins wherever two overlap.
std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<Piece> pieces;
  if (specials_.empty()) {
    if (!text.empty()) pieces.push_back({0, text.size(), kNoToken});
  } else {
    struct Hit {
      size_t at;
      const Special* special;
    };
    std::vector<bool> is_present(specials_.size(), false);
    bool has_any = false;
    for (size_t at = 0; at < text.size(); ++at) {
      for (const uint32_t i : by_first_[static_cast<uint8_t>(text[at])]) {
        if (is_present[i] || (!options.markup && !specials_[i].is_user_defined)) continue;
        is_present[i] = text.compare(at, specials_[i].text.size(), specials_[i].text) == 0;
        has_any = has_any || is_present[i];
      }
    }
    std::vector<Hit> taken;
    std::vector<bool> is_covered(has_any ? text.size() : 0, false);
    for (size_t i = 0; i < specials_.size(); ++i) {
      if (!is_present[i]) continue;
      const size_t length = specials_[i].text.size();
      for (size_t at = 0; (at = text.find(specials_[i].text, at)) != std::string_view::npos;) {
        const auto begin = is_covered.begin() + static_cast<std::ptrdiff_t>(at);
        const auto end = begin + static_cast<std::ptrdiff_t>(length);
        if (std::find(begin, end, true) != end) {
          ++at;
          continue;
        }
        std::fill(begin, end, true);
        taken.push_back({at, &specials_[i]});
        at += length;
      }
    }
    std::sort(taken.begin(), taken.end(), [](const Hit& a, const Hit& b) { return a.at < b.at; });
    size_t begin = 0;
    for (const Hit& hit : taken) {
      if (hit.at > begin) pieces.push_back({begin, hit.at, kNoToken});
      begin = hit.at + hit.special->text.size();
      pieces.push_back({hit.at, begin, hit.special->id});
      if (spec_.strips_after_special && !hit.special->is_user_defined) {
        while (begin < text.size() && is_space(static_cast<uint8_t>(text[begin])) &&
               static_cast<uint8_t>(text[begin]) < 128)
          ++begin;
      }
    }
    if (begin < text.size()) pieces.push_back({begin, text.size(), kNoToken});
  }
  std::vector<int32_t> ids;
  if (options.special && adds_bos()) ids.push_back(spec_.bos);
  bool is_start = true;
  for (const Piece& piece : pieces) {
    if (piece.id != kNoToken) {
      ids.push_back(piece.id);
      is_start = true;
      continue;
    }
    encode_plain(text.substr(piece.begin, piece.end - piece.begin), is_start, &ids);
    is_start = false;
  }
  if (options.special && adds_eos()) ids.push_back(spec_.eos);
  return ids;
}

std::string Tokenizer::token_bytes(int32_t id, bool show_control) const {
  if (id < 0 || id >= n_vocab()) return {};
  if (is_control(id)) return show_control ? spec_.tokens[static_cast<size_t>(id)] : std::string();
  if (type_of(id) == kTypeUserDefined) return spec_.tokens[static_cast<size_t>(id)];
  return plain_bytes(id);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool show_control) const {
  std::string text;
  bool is_first = true;
  for (const int32_t id : ids) {
    const bool is_plain = id >= 0 && id < n_vocab() && !is_control(id) && type_of(id) != kTypeUserDefined;
    text += is_first && is_plain ? first_bytes(id) : token_bytes(id, show_control);
    is_first = is_first && is_control(id);
  }
  return text;
}

Result<std::unique_ptr<Tokenizer>> make_tokenizer(VocabSpec spec) {
  if (spec.tokens.empty()) return make_error(Code::kCorrupt, "the vocabulary has no tokens");
  if (!spec.token_type.empty() && spec.token_type.size() != spec.tokens.size()) {
    return make_error(Code::kCorrupt, "the vocabulary has %zu tokens and %zu token types", spec.tokens.size(),
                      spec.token_type.size());
  }
  if (spec.model == "gpt2" || spec.model == "gemma4") return text_internal::make_bpe(std::move(spec));
  if (spec.model == "llama") return text_internal::make_spm(std::move(spec));
  return make_error(Code::kUnsupported, "tokenizer model '%s' is not supported; known: gpt2, gemma4, llama",
                    spec.model.c_str());
}

}  // namespace les

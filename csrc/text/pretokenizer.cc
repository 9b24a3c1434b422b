#include "text/pretokenizer.h"

#include <algorithm>

namespace les {

namespace {

#define CONTRACTIONS "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

constexpr const char* kGpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
constexpr const char* kLlama3 =
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
constexpr const char* kQwen2 =
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
constexpr const char* kQwen35 =
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES;
constexpr const char* kBailing =
    "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
// Upper-case letters are all but a-z, lower-case ones all but A-Z, as the engine that made the files has it.
constexpr const char* kGpt4o = "[^\\r\\n\\p{L}\\p{N}]?[\\p{L}&&[^a-z]]*[\\p{L}&&[^A-Z]]+" CONTRACTIONS
                               "?|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}&&[^a-z]]+[\\p{L}&&[^A-Z]]*" CONTRACTIONS
                               "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES;
constexpr const char* kTekken =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{L}&&[^a-z]]*[\\p{L}&&[^A-Z]]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}&&[^a-z]]+[\\p{L}&&[^A-Z]]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES;
constexpr const char* kKimi =
    "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lo}\\p{M}&&[^\\p{Han}]]*[\\p{Ll}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
    "+" CONTRACTIONS
    "?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lo}\\p{M}&&[^\\p{Han}]]+[\\p{Ll}\\p{Lo}\\p{M}&&[^\\p{Han}]]*" CONTRACTIONS
    "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
constexpr const char* kNumber = "\\p{N}";
constexpr const char* kThreeNumbers = "\\p{N}{1,3}";
constexpr const char* kLineEnd = "[\\r\\n]";
constexpr const char* kCjkV3 = "[一-龥぀-ゟ゠-ヿ]+";
constexpr const char* kCjk = "[一-龥ࠀ-一가-퟿]+";
constexpr const char* kDeepSeekV3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES;
// Cased scripts only: other letters are left to the patterns after this one.
constexpr const char* kDeepSeekWords =
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-"
    "ῄῆ-ῌῐ-ΐῖ-Ί"
    "ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-\u212dℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⲳⲳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-"
    "𑣟𞤀-𞥃]+";
constexpr const char* kDeepSeekMarks = "\\s?[!-/:-~！-／：-～‘-‟　-。]+";

struct Entry {
  const char* names;                  // separated by spaces
  std::vector<const char*> patterns;
  bool takes_whole_words = false;
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> kEntries = {
      {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", kGpt2, "\\p{N}+", "[0-9][0-9][0-9]"}},
      {"gpt-2 phi-2 mpt olmo jais granite-docling exaone4", {kGpt2}},
      {"smollm starcoder refact command-r codeshell exaone minerva-7b", {kNumber, kGpt2}},
      {"llama-bpe llama3 llama-v3 falcon3 pixtral lfm2", {kLlama3}, true},
      {"smaug-bpe dbrx glm4 chatglm-bpe", {kLlama3}},
      {"qwen2 stablelm2 hunyuan deepseek-r1-qwen megrez", {kQwen2}},
      {"qwen35", {kQwen35}},
      {"bailingmoe bailingmoe2 llada-moe", {kBailing}},
      {"gpt-4o llama4 minimax-m2", {kGpt4o}},
      {"tekken", {kTekken}, true},
      {"kimi-k2", {kKimi}},
      {"deepseek-llm", {kLineEnd, kDeepSeekWords, kDeepSeekMarks, "\\s+$", kCjk, "\\p{N}+"}},
      {"deepseek-coder", {kLineEnd, "\\s?\\p{L}+", "\\s?\\p{P}+", kCjk, kNumber}},
      {"deepseek-v3 hunyuan-dense", {kThreeNumbers, kCjkV3, kDeepSeekV3}},
  };
  return kEntries;
}

bool has_name(const char* names, const std::string& name) {
  return (std::string(" ") + names + " ").find(" " + name + " ") != std::string::npos;
}

}  // namespace

Result<Pretokenizer> make_pretokenizer(const std::string& name) {
  std::string known;
  for (const Entry& entry : entries()) {
    known += std::string(known.empty() ? "" : " ") + entry.names;
    if (!has_name(entry.names, name.empty() ? "default" : name)) continue;
    Pretokenizer result;
    result.takes_whole_words = entry.takes_whole_words;
    for (const char* source : entry.patterns) {
      LES_ASSIGN_OR_RETURN(Pattern pattern, compile_pattern(source));
      result.patterns.push_back(std::move(pattern));
    }
    return result;
  }
  std::replace(known.begin(), known.end(), ' ', ',');
  return make_error(Code::kUnsupported, "pre-tokenizer '%s' is not supported; known: %s", name.c_str(), known.c_str());
}

std::vector<uint32_t> Pretokenizer::split(std::string_view text) const {
  const std::vector<Char> chars = decode_utf8(text);
  std::vector<uint32_t> ends = {static_cast<uint32_t>(chars.size() - 1)};  // as character indices
  for (const Pattern& pattern : patterns) {
    std::vector<uint32_t> finer;
    uint32_t begin = 0;
    for (const uint32_t end : ends) {
      uint32_t loose = begin;   // start of what no match has covered yet
      if (pattern.is_tail()) {
        // From the end backwards: trying every start would take quadratic time on long runs before something else.
        uint32_t at = end;
        while (at > begin && pattern.alternatives[0][0].set.contains(chars[at - 1].code)) --at;
        if (at > begin) finer.push_back(at);
        if (end > at) finer.push_back(end);
        begin = end;
        continue;
      }
      for (uint32_t at = begin; at < end;) {
        const auto n = static_cast<uint32_t>(pattern.match(chars, at, end));
        if (n == 0) {
          ++at;
          continue;
        }
        if (at > loose) finer.push_back(at);
        at += n;
        finer.push_back(at);
        loose = at;
      }
      if (end > loose) finer.push_back(end);
      begin = end;
    }
    ends = std::move(finer);
  }
  for (uint32_t& end : ends) end = chars[end].offset;
  return ends;
}

}  // namespace les

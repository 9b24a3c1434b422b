#include <doctest/doctest.h>

#include <chrono>

#include "text/detokenizer.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace les {
namespace {

using Ids = std::vector<int32_t>;

// Byte tokens 0 to 255 in GPT-2's alphabet, then what a test adds.
VocabSpec byte_spec(const std::string& pre) {
  VocabSpec spec;
  spec.model = "gpt2";
  spec.pre = pre;
  uint32_t spare = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool is_printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    std::string text;
    append_utf8(is_printable ? b : spare++, &text);
    spec.tokens.push_back(text);
    spec.token_type.push_back(1);
  }
  return spec;
}

int32_t add_token(VocabSpec* spec, const std::string& text, int32_t type = 1, float score = 0) {
  spec->tokens.push_back(text);
  spec->token_type.push_back(type);
  if (spec->model == "llama") spec->scores.push_back(score);
  return static_cast<int32_t>(spec->tokens.size()) - 1;
}

std::shared_ptr<const Tokenizer> make(VocabSpec spec) {
  auto result = make_tokenizer(std::move(spec));
  REQUIRE_MESSAGE(result.is_ok(), result.status().message());
  return std::shared_ptr<const Tokenizer>(std::move(*result));
}

std::vector<std::string> split(const std::string& pre, const std::string& text) {
  auto pretokenizer = make_pretokenizer(pre);
  REQUIRE(pretokenizer.is_ok());
  std::vector<std::string> words;
  size_t begin = 0;
  for (const uint32_t end : pretokenizer->split(text)) {
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

using Words = std::vector<std::string>;

TEST_CASE("pre-tokenizers split as their expressions say") {
  CHECK(split("gpt-2", "I'm  12345 ok!?\n x") == Words{"I", "'m", " ", " 12345", " ok", "!?", "\n", " x"});
  CHECK(split("llama-bpe", "I'M  12345 ok!?\n x") == Words{"I", "'M", " ", " ", "123", "45", " ok", "!?\n", " x"});
  CHECK(split("qwen2", "a12 \n\n b") == Words{"a", "1", "2", " \n\n", " b"});
  CHECK(split("smollm", " 12a") == Words{" ", "1", "2", "a"});
  CHECK(split("deepseek-v3", "+ab 1234日本x") == Words{"+ab", " ", "123", "4", "日本", "x"});
  CHECK(split("deepseek-llm", "a  \n12") == Words{"a", "  ", "\n", "12"});
  CHECK(split("gpt-4o", "HelloWorld's a/\n") == Words{"Hello", "World's", " a", "/\n"});
  CHECK(split("kimi-k2", "中文Abc") == Words{"中文", "Abc"});
}

TEST_CASE("the merge that comes first in the file wins, whatever its place in the word") {
  VocabSpec spec = byte_spec("gpt-2");
  const int32_t bc = add_token(&spec, "bc"), ab = add_token(&spec, "ab");
  spec.merges = {"b c", "a b", "x absent", "malformed", ""};
  const auto tokenizer = make(std::move(spec));
  CHECK(tokenizer->encode("abc") == Ids{'a', bc});
  CHECK(tokenizer->encode("abb") == Ids{ab, 'b'});
  CHECK(tokenizer->decode(tokenizer->encode("abc \xff\xc3\xa9")) == "abc \xff\xc3\xa9");
}

TEST_CASE("control tokens are found in markup alone, user-defined ones always and longest first") {
  VocabSpec spec = byte_spec("gpt-2");
  const int32_t end = add_token(&spec, "<|end|>", 3);
  const int32_t two = add_token(&spec, "__", 4), three = add_token(&spec, "___", 4);
  spec.eos = end;
  const auto tokenizer = make(std::move(spec));
  CHECK(tokenizer->encode("<|end|>").size() == 7);
  CHECK(tokenizer->encode("a<|end|>", {.markup = true}) == Ids{'a', end});
  CHECK(tokenizer->encode("______a__") == Ids{three, three, 'a', two});
  CHECK(tokenizer->is_eog(end));
  CHECK(tokenizer->decode(Ids{'a', end}) == "a");
  CHECK(tokenizer->decode(Ids{'a', end}, true) == "a<|end|>");
}

TEST_CASE("SentencePiece joins by score, falls back to bytes and takes its own space off again") {
  VocabSpec spec;
  spec.model = "llama";
  add_token(&spec, "<unk>", 2);
  const int32_t bos = add_token(&spec, "<s>", 3);
  for (int b = 0; b < 256; ++b) add_token(&spec, format_text("<0x%02X>", b), 6);
  const int32_t mark = add_token(&spec, "▁", 1, -9), a = add_token(&spec, "a", 1, -9), b = add_token(&spec, "b", 1, -9);
  const int32_t mark_a = add_token(&spec, "▁a", 1, -3), ab = add_token(&spec, "ab", 1, -2);
  spec.bos = bos;
  const auto tokenizer = make(std::move(spec));
  CHECK(tokenizer->encode("a") == Ids{mark_a});
  CHECK(tokenizer->encode("ab", {.special = true}) == Ids{bos, mark, ab});
  CHECK(tokenizer->encode("ba a") == Ids{mark, b, a, mark_a});
  CHECK(tokenizer->encode("\xc3\xa9") == Ids{mark, 2 + 0xc3, 2 + 0xa9});
  for (const char* text : {"", " ", "  a", "ab \xc3\xa9", "a b a "})
    CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
}

TEST_CASE("a vocabulary that contradicts itself is refused in words or harmless") {
  VocabSpec spec = byte_spec("no-such-name");
  auto result = make_tokenizer(spec);
  REQUIRE(!result.is_ok());
  CHECK(result.status().message().find("no-such-name") != std::string::npos);
  CHECK(result.status().message().find("qwen2") != std::string::npos);
  spec = byte_spec("gpt-2");
  spec.model = "no-such-model";
  CHECK(make_tokenizer(spec).status().code() == Code::kUnsupported);
  spec = byte_spec("gpt-2");
  spec.token_type.pop_back();
  CHECK(make_tokenizer(spec).status().code() == Code::kCorrupt);
  CHECK(make_tokenizer(VocabSpec{}).status().code() == Code::kCorrupt);
  VocabSpec bytes;
  bytes.model = "llama";
  add_token(&bytes, "<0xZZ>", 6);
  add_token(&bytes, "<0x41>", 6);
  const auto tokenizer = make(std::move(bytes));
  CHECK(tokenizer->token_bytes(0) == "<0xZZ>");
  CHECK(tokenizer->decode(Ids{1}) == "A");
  CHECK(tokenizer->decode(Ids{-1, 2, 1 << 30}).empty());
}

TEST_CASE("the streaming detokenizer gives whole characters, and U+FFFD for what is none") {
  const auto tokenizer = make(byte_spec("gpt-2"));
  Detokenizer stream(tokenizer);
  CHECK(stream.add(0xE2).empty());
  CHECK(stream.add(0x82).empty());
  CHECK(stream.add(0xAC) == "€");
  CHECK(stream.add(0xE2).empty());
  CHECK(stream.add('a') ==
        "\xef\xbf\xbd"
        "a");
  CHECK(stream.add(0xF0).empty());
  CHECK(stream.add(0x9F).empty());
  CHECK(stream.finish() == "\xef\xbf\xbd");
  CHECK(repair_utf8("\xed\xa0\x80|\xc0\xaf|\xf4\x90", true, nullptr) ==
        "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd");
}

TEST_CASE("long runs take no quadratic time") {
  size_t n_bytes = 1 << 20;
  for (const char* pre :
       {"gpt-2", "llama-bpe", "qwen35", "deepseek-llm", "deepseek-v3", "gpt-4o", "tekken", "kimi-k2"}) {
    VocabSpec spec = byte_spec(pre);
    for (const char* pair : {"aa", "AA", "ĠĠ"}) add_token(&spec, pair);
    for (int i = 2; i < 32; ++i) add_token(&spec, std::string(static_cast<size_t>(i), '\n'), 4);
    spec.merges = {"a a", "A A", "Ġ Ġ"};
    const auto tokenizer = make(std::move(spec));
    for (const std::string run : {"a", "A", " ", "\n", "'", "0"}) {
      std::string text;
      while (text.size() < n_bytes) text += run;
      text += "1";
      const auto start = std::chrono::steady_clock::now();
      const Ids ids = tokenizer->encode(text);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      CHECK(tokenizer->decode(ids) == text);
      CHECK_MESSAGE(seconds < 20, pre << " on '" << run << "' took " << seconds << " s");  // quadratic: minutes
    }
    n_bytes = 1 << 18;
  }
}

}  // namespace
}  // namespace les

// Tokenizers built from GGUF metadata: byte-level BPE ("gpt2") and SentencePiece style ("llama", "gemma4").
// Knows no files and no templates. Thread-safety: immutable after make_tokenizer; all const functions are reentrant.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"

namespace les {

constexpr int32_t kNoToken = -1;

// tokenizer.ggml.* of a file, under the names GGUF gives them.
struct VocabSpec {
  std::string model;                // "gpt2", "llama", "gemma4", ...
  std::string pre;                  // pre-tokenizer name; "" = default
  std::vector<std::string> tokens;
  std::vector<int32_t> token_type;  // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte; may be empty
  std::vector<float> scores;        // SentencePiece only
  std::vector<std::string> merges;  // BPE only, "left right"
  int32_t bos = kNoToken, eos = kNoToken, unknown = kNoToken, padding = kNoToken, mask = kNoToken;
  std::vector<int32_t> more_eog;    // eot, eom and others that end a generation
  int add_bos = -1, add_eos = -1, add_space_prefix = -1;  // -1: not in the file, the model's default applies
  bool strips_after_special = false;  // white space after a control token belongs to it (Phi-3)
};

struct EncodeOptions {
  bool markup = false;   // recognise control tokens in the text; only ever for template markup
  bool special = false;  // add the BOS and EOS that the file asks for
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;
  // The bytes of one token; control tokens give their name only with show_control, else nothing.
  std::string token_bytes(int32_t id, bool show_control = false) const;
  std::string decode(std::span<const int32_t> ids, bool show_control = false) const;

  int32_t n_vocab() const { return static_cast<int32_t>(spec_.tokens.size()); }
  const VocabSpec& spec() const { return spec_; }
  bool is_control(int32_t id) const;
  bool is_eog(int32_t id) const;             // ends a generation
  int32_t token_to_id(std::string_view token) const;  // exact vocabulary entry, or kNoToken
  bool adds_bos() const;
  bool adds_eos() const;

 protected:
  explicit Tokenizer(VocabSpec spec);
  // Text without special tokens in it. is_start: nothing, or a special token, stands before it.
  virtual void encode_plain(std::string_view text, bool is_start, std::vector<int32_t>* out) const = 0;
  virtual std::string plain_bytes(int32_t id) const = 0;
  // Of a token that stands first in a text; the default is plain_bytes.
  virtual std::string first_bytes(int32_t id) const { return plain_bytes(id); }

  // What holds when the file does not say.
  virtual bool adds_bos_by_default() const { return false; }

  int32_t type_of(int32_t id) const;
  VocabSpec spec_;
  std::unordered_map<std::string_view, int32_t> ids_;   // by text; views into spec_.tokens

 private:
  struct Special {
    std::string_view text;
    int32_t id;
    bool is_user_defined;   // recognised in any text, not in markup only
  };

  std::vector<Special> specials_;                 // longest first
  std::vector<std::vector<uint32_t>> by_first_;   // by first byte: indices into specials_, longest first
  std::vector<bool> is_eog_;
};

namespace text_internal {
Result<std::unique_ptr<Tokenizer>> make_bpe(VocabSpec spec);
Result<std::unique_ptr<Tokenizer>> make_spm(VocabSpec spec);
}  // namespace text_internal

// Refuses an unknown model or pre-tokenizer by name and lists those known.
Result<std::unique_ptr<Tokenizer>> make_tokenizer(VocabSpec spec);

}  // namespace les

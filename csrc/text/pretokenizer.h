// Cuts text into the pieces that byte-pair merges stay within, as the vocabulary's pre-tokenizer says.
// Thread-safety: immutable after make_pretokenizer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/pattern.h"

namespace les {

struct Pretokenizer {
  std::vector<Pattern> patterns;     // each cuts the pieces that those before left
  bool takes_whole_words = false;    // a piece that is a token needs no merges ("ignore_merges")

  // Ends of the pieces, as byte offsets into text.
  std::vector<uint32_t> split(std::string_view text) const;
};

// By the name in tokenizer.ggml.pre; refuses an unknown one with the list of those known.
Result<Pretokenizer> make_pretokenizer(const std::string& name);

}  // namespace les

// tokenizer.ggml.* of a file as a vocabulary: the only bridge between text and store.
#pragma once

#include "store/gguf.h"
#include "text/tokenizer.h"

namespace les {

Result<VocabSpec> vocab_from_gguf(const GgufFile& file);

}  // namespace les

#include "engine/vocab.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace les {

namespace {

// Texts by which families end a turn. A token with one of them is a control token, whatever type the file gives it.
constexpr std::array kEndTexts = std::to_array<std::string_view>(
    {"<|im_end|>", "<|eot_id|>",    "<|eom_id|>",        "<|end|>",   "<end_of_turn>",
     "<turn|>",    "<|endoftext|>", "<|end_of_text|>",   "</s>",      "<|return|>",
     "<|call|>",   "<EOT>",         "<|role_end|>",      "<|eos|>",   "<｜end▁of▁sentence｜>",
     "[EOS]",      "<eos>",         "<|observation|>",   "<|flush|>", "<|calls|>",
     "[EOT]",      "_<EOT>",        "<end_of_utterance>"});

Result<int32_t> token_id(const GgufFile& file, const char* name, size_t n_tokens) {
  const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
  if (file.find(key) == nullptr) return kNoToken;
  LES_ASSIGN_OR_RETURN(const uint64_t id, file.get_u64(key));
  if (id == UINT32_MAX) return kNoToken;   // some converters write "none" so
  if (id >= n_tokens) {
    return make_error(Code::kCorrupt, "%s: %s is %llu; the vocabulary has %zu tokens", file.path().c_str(), key.c_str(),
                      static_cast<unsigned long long>(id), n_tokens);
  }
  return static_cast<int32_t>(id);
}

Result<int> flag(const GgufFile& file, const char* name) {
  const std::string key = std::string("tokenizer.ggml.") + name;
  if (file.find(key) == nullptr) return -1;
  LES_ASSIGN_OR_RETURN(const bool value, file.get_bool(key));
  return value ? 1 : 0;
}

bool is_phi3(const GgufFile& file) {
  const auto name = file.get_string("general.name");
  if (!name.is_ok()) return false;
  std::string lower = *name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower.find("phi-3") != std::string::npos || lower.find("phi3") != std::string::npos;
}

constexpr int32_t kControlType = 3;

Status add_end_tokens(const GgufFile& file, VocabSpec* spec) {
  for (const char* name : {"eot", "eom", "eog"}) {
    LES_ASSIGN_OR_RETURN(const int32_t id, token_id(file, name, spec->tokens.size()));
    if (id != kNoToken) spec->more_eog.push_back(id);
  }
  // gpt-oss ends each of its channels with <|end|> and the reply with <|return|>.
  const bool has_channels = std::find(spec->tokens.begin(), spec->tokens.end(), "<|return|>") != spec->tokens.end();
  for (size_t i = 0; i < spec->token_type.size(); ++i) {
    if (has_channels && spec->tokens[i] == "<|end|>") continue;
    if (std::find(kEndTexts.begin(), kEndTexts.end(), spec->tokens[i]) == kEndTexts.end()) continue;
    if (spec->model == "gemma4" && spec->tokens[i] == "</s>") continue;   // HTML there
    spec->token_type[i] = kControlType;
    spec->more_eog.push_back(static_cast<int32_t>(i));
  }
  return Status::ok();
}

}  // namespace

Result<VocabSpec> vocab_from_gguf(const GgufFile& file) {
  VocabSpec spec;
  LES_ASSIGN_OR_RETURN(spec.model, file.get_string("tokenizer.ggml.model"));
  if (file.find("tokenizer.ggml.pre") != nullptr) {
    LES_ASSIGN_OR_RETURN(spec.pre, file.get_string("tokenizer.ggml.pre"));
  }
  LES_ASSIGN_OR_RETURN(spec.tokens, file.get_strings("tokenizer.ggml.tokens"));
  if (file.find("tokenizer.ggml.merges") != nullptr) {
    LES_ASSIGN_OR_RETURN(spec.merges, file.get_strings("tokenizer.ggml.merges"));
  }
  if (file.find("tokenizer.ggml.scores") != nullptr) {
    LES_ASSIGN_OR_RETURN(const std::vector<double> scores, file.get_floats("tokenizer.ggml.scores"));
    spec.scores.assign(scores.begin(), scores.end());
  }
  if (file.find("tokenizer.ggml.token_type") != nullptr) {
    LES_ASSIGN_OR_RETURN(const std::vector<int64_t> types, file.get_integers("tokenizer.ggml.token_type"));
    spec.token_type.assign(types.begin(), types.end());
  }
  const size_t n = spec.tokens.size();
  LES_ASSIGN_OR_RETURN(spec.bos, token_id(file, "bos", n));
  LES_ASSIGN_OR_RETURN(spec.eos, token_id(file, "eos", n));
  LES_ASSIGN_OR_RETURN(spec.unknown, token_id(file, "unknown", n));
  LES_ASSIGN_OR_RETURN(spec.padding, token_id(file, "padding", n));
  LES_ASSIGN_OR_RETURN(spec.mask, token_id(file, "mask", n));
  LES_ASSIGN_OR_RETURN(spec.add_bos, flag(file, "add_bos_token"));
  LES_ASSIGN_OR_RETURN(spec.add_eos, flag(file, "add_eos_token"));
  LES_ASSIGN_OR_RETURN(spec.add_space_prefix, flag(file, "add_space_prefix"));
  spec.strips_after_special = is_phi3(file);
  if (!spec.token_type.empty() && spec.token_type.size() != n) {
    return make_error(Code::kCorrupt, "%s: the vocabulary has %zu tokens and %zu token types", file.path().c_str(), n,
                      spec.token_type.size());
  }
  LES_RETURN_IF_ERROR(add_end_tokens(file, &spec));
  return spec;
}

}  // namespace les

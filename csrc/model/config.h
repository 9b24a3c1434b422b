// What a GGUF file says about a model's shape: the keys that many families share, read once and checked.
// Keys of one family only are read by that family through KeyReader. Pure; knows no tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/gguf.h"

namespace les {

enum class Gating : int { kNone = 0, kSoftmax = 1, kSigmoid = 2, kSoftmaxOfChosen = 3 };

struct RopeScaling {
  std::string type = "none";  // none, linear, yarn, longrope
  float factor = 1;
  int original_context = 0;
  float attn_factor = 1;
  float beta_fast = 32, beta_slow = 1;
  float log_multiplier = 0;   // deepseek's yarn
};

struct ModelConfig {
  std::string arch;
  int n_layers = 0;           // without next-token-prediction blocks
  int n_mtp_layers = 0;       // blocks after them
  int d_model = 0;
  int n_vocab = 0;            // rows of the token embedding
  int context_train = 0;
  int context = 0;            // tokens that the session will hold; not from the file
  float norm_eps = 1e-5f;

  std::vector<int> n_heads;     // per layer, MTP blocks included
  std::vector<int> n_kv_heads;  // per layer; 0: a layer without attention
  int dim_k = 0, dim_v = 0;     // per head
  int n_rot = 0;                // rotated dimensions per head
  float rope_base = 10000;
  RopeScaling rope_scaling;
  int sliding_window = 0;

  std::vector<int> ff;          // width of the dense FFN per layer
  int n_expert = 0, n_expert_used = 0;
  int expert_ff = 0;
  int shared_ff = 0;            // width of the shared expert; 0: n_shared * expert_ff, or none
  int n_shared = 0;
  int n_leading_dense = 0;
  Gating gating = Gating::kNone;  // kNone: the family's default
  bool has_weights_norm = false, weights_norm = false;
  float weights_scale = 1;
  int n_group = 1, n_group_used = 1;
};

// Reads `<arch>.<name>`. Optional look-ups give the fall-back only when the key is absent; a key of the wrong type or
// out of range is an error that names file, key, expected and actual.
class KeyReader {
 public:
  KeyReader(const GgufFile& file, std::string arch) : file_(file), arch_(std::move(arch)) {}

  bool has(const char* name) const;
  Result<int> integer(const char* name) const;
  Result<int> integer_or(const char* name, int fallback) const;
  Result<float> number_or(const char* name, float fallback) const;
  Result<bool> boolean_or(const char* name, bool fallback) const;
  Result<std::string> text_or(const char* name, const char* fallback) const;
  // One value for all layers or an array with one for each.
  Result<std::vector<int>> per_layer(const char* name, int n_layers, int fallback) const;
  const GgufFile& file() const { return file_; }
  std::string key(const char* name) const { return arch_ + "." + name; }

 private:
  const GgufFile& file_;
  std::string arch_;
};

Result<ModelConfig> read_config(const GgufFile& file);

}  // namespace les

// DSpark and DFlash draft models: a small network that reads the target's residual stream at chosen layers and guesses
// a block of tokens in one pass. Every target token gives one key and one value per draft layer ("context rows").
// Thread-safety: DraftModel is immutable once loaded; a State belongs to one session.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/attention.h"
#include "model/ffn.h"
#include "model/graph.h"

namespace les {

struct DraftLayer {
  AttentionSpec spec;
  AttentionWeights attn;
  Vector attn_norm, ffn_norm;
  FfnWeights ffn;
};

struct DraftModel {
  int d_model = 0, n_vocab = 0, d_target = 0;
  int block_size = 0;               // slots of a full block
  bool from_anchor = true;          // slot 0 drafts a token too
  int mask_token = 0, rank = 0;     // rank 0: no Markov head
  float eps = 1e-6f;
  std::vector<int> target_layers;   // whose inputs are tapped, in the order of fc's columns
  Rope rope;
  std::vector<DraftLayer> layers;
  Matrix fc, output, markov_w1, markov_w2;   // output empty: the target's head
  Vector context_norm, output_norm, confidence, confidence_bias;
  bool has_embedding = false;
  std::vector<int32_t> d2t;         // target's token of each row of the head; empty: the same ids

  int max_tokens() const { return from_anchor ? block_size : block_size - 1; }
  int n_rows() const { return d2t.empty() ? n_vocab : static_cast<int>(d2t.size()); }  // of the head
  StateSpec state_spec() const;
  size_t scratch_floats(int n_tokens, int n_threads, int context) const;  // of observing n_tokens, or of one block
};

// Checks the file against its target, and binds what it needs. The model must stay where it is until it is loaded.
Status bind_draft_model(WeightBinder& binder, const ModelConfig& target, DraftModel* model);

// taps [n, target_layers.size() * d_target] of the tokens at position ...; writes their context rows to state.
void observe_taps(const DraftModel& model, Exec& exec, State& state, const float* taps, int n, int position);

struct DraftRequest {
  int anchor = 0, position = 0;     // the text's last token, which the target has not processed, and where it stands
  int n_tokens = 0;
  const EmbedFn* embed = nullptr;
  const Matrix* head = nullptr;     // of the target
  bool wants_trace = false;
};

struct DraftResult {
  std::vector<int32_t> tokens;
  std::vector<float> confidences;   // empty without a confidence head
  // With wants_trace: [slots, d_model], [slots, n_rows], [slots, n_rows].
  std::vector<float> hidden, base_logits, logits;
};

// A block after the context rows 0 .. position - 1. State needs room for position + block_size.
Status draft_block(const DraftModel& model, Exec& exec, State& state, const DraftRequest& request, DraftResult* result);

}  // namespace les

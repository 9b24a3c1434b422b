// Which experts a token uses, and with what weight. Pure functions over one token's router logits.
#pragma once

#include "model/config.h"

namespace les {

struct RouterSpec {
  Gating gating = Gating::kSoftmax;
  int n_expert = 0, n_used = 0;
  int n_group = 1, n_group_used = 1;  // DeepSeek-V3: only experts of the best groups may be chosen
  bool norm_weights = false;          // chosen weights are divided by their sum
  float weights_scale = 1;
  float logit_scale = 1;              // on the logits, before they become scores
};

// logits [n_expert] (overwritten); selection_bias [n_expert] or null: added for choosing, not for weighing.
// chosen and weights [n_used], highest selection score first; of equal scores the lower expert.
void choose_experts(const RouterSpec& spec, float* logits, const float* selection_bias, int* chosen, float* weights);

}  // namespace les

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "model/router.h"

namespace les {
namespace {

struct Choice {
  std::vector<int> chosen;
  std::vector<float> weights;
};

Choice choose(const RouterSpec& spec, std::vector<float> logits, const std::vector<float>& bias = {}) {
  Choice c{std::vector<int>(static_cast<size_t>(spec.n_used)), std::vector<float>(static_cast<size_t>(spec.n_used))};
  choose_experts(spec, logits.data(), bias.empty() ? nullptr : bias.data(), c.chosen.data(), c.weights.data());
  return c;
}

TEST_CASE("softmax before top-k, with and without normalisation") {
  RouterSpec spec{Gating::kSoftmax, 4, 2};
  const std::vector<float> logits = {0, std::log(2.0f), std::log(4.0f), std::log(1.0f)};
  Choice c = choose(spec, logits);
  CHECK(c.chosen == std::vector<int>{2, 1});
  CHECK(c.weights[0] == doctest::Approx(0.5));
  CHECK(c.weights[1] == doctest::Approx(0.25));
  spec.norm_weights = true;
  spec.weights_scale = 3;
  c = choose(spec, logits);
  CHECK(c.weights[0] == doctest::Approx(2));
  CHECK(c.weights[1] == doctest::Approx(1));
}

TEST_CASE("a scale on the logits comes before the scores") {
  RouterSpec spec{Gating::kSoftmax, 2, 1};
  spec.logit_scale = 0.5f;
  const Choice c = choose(spec, {std::log(9.0f), 0});
  CHECK(c.chosen == std::vector<int>{0});
  CHECK(c.weights[0] == doctest::Approx(0.75));
}

TEST_CASE("softmax over the chosen only") {
  const Choice c = choose({Gating::kSoftmaxOfChosen, 3, 2}, {5, 5 + std::log(3.0f), -7});
  CHECK(c.chosen == std::vector<int>{1, 0});
  CHECK(c.weights[0] == doctest::Approx(0.75));
}

TEST_CASE("a selection bias chooses but does not weigh") {
  const Choice c = choose({Gating::kSigmoid, 3, 1}, {0, 1, 2}, {1, 0, 0});
  CHECK(c.chosen == std::vector<int>{0});
  CHECK(c.weights[0] == doctest::Approx(0.5));
}

TEST_CASE("only experts of the best groups may be chosen") {
  RouterSpec spec{Gating::kSigmoid, 6, 2};
  spec.n_group = 3;
  spec.n_group_used = 1;
  // The best single expert is in group 0, the best pair in group 2.
  const Choice c = choose(spec, {9, -9, 0, 0, 3, 4});
  CHECK(c.chosen == std::vector<int>{5, 4});
}

TEST_CASE("of equal scores the lower expert") {
  CHECK(choose({Gating::kSoftmax, 4, 2}, {1, 1, 1, 1}).chosen == std::vector<int>{0, 1});
}

}  // namespace
}  // namespace les

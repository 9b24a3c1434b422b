// The choice of a token for programs without Python: the same rules in the same order as les.sampler, other random
// numbers.
#include <cmath>
#include <random>

#include "capi/capi.h"

using les::capi::fail;
using les::capi::guard;

struct les_sampler {
  les_sampler_options options;
  uint64_t state = 0;
  std::vector<int32_t> ids;  // kept between calls, so that choosing allocates once
  std::vector<double> weights;
};

namespace {

constexpr size_t kOptionsMinBytes = sizeof(les_sampler_options);

les_sampler_options default_options() {
  les_sampler_options options{};
  options.struct_size = sizeof(options);
  options.temperature = 0.8F;
  options.top_p = 0.95F;
  options.min_p = 0.05F;
  options.top_k = 40;
  return options;
}

les_status check_range(const char* name, float value, float high) {
  if (std::isfinite(value) && value >= 0 && value <= high) return LES_OK;
  if (std::isinf(high)) return fail(LES_INVALID_ARGUMENT, "%s is %g; expected 0 or more", name, value);
  return fail(LES_INVALID_ARGUMENT, "%s is %g; expected 0 to %g", name, value, high);
}

// SplitMix64 (Steele, Lea, Flood 2014), 53 bits of it: a number in [0, 1).
double next_uniform(uint64_t* state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15ULL);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

// Leaves in sampler->ids what may be chosen, likeliest first, and their likelihoods at temperature 1 in weights.
void truncate(les_sampler* sampler, const float* logits, size_t n_vocab, float highest) {
  const les_sampler_options& options = sampler->options;
  std::vector<int32_t>& ids = sampler->ids;
  ids.resize(n_vocab);
  for (size_t i = 0; i < n_vocab; ++i) ids[i] = static_cast<int32_t>(i);
  const auto likelier = [logits](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  const auto top_k = static_cast<size_t>(options.top_k);
  if (top_k > 0 && top_k < n_vocab) {
    std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(top_k), ids.end(), likelier);
    ids.resize(top_k);
  } else {
    std::sort(ids.begin(), ids.end(), likelier);
  }
  std::vector<double>& weights = sampler->weights;
  weights.resize(ids.size());
  double total = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    weights[i] = std::exp(static_cast<double>(logits[ids[i]]) - static_cast<double>(highest));
    total += weights[i];
  }
  size_t keep = ids.size();
  if (options.top_p < 1) {
    double sum = 0;
    for (keep = 0; keep < ids.size() && sum <= static_cast<double>(options.top_p) * total; ++keep) sum += weights[keep];
  }
  size_t likely = 0;
  while (likely < keep && weights[likely] >= static_cast<double>(options.min_p)) ++likely;
  keep = std::max<size_t>(1, likely);
  ids.resize(keep);
  weights.resize(keep);
}

}  // namespace

les_status les_sampler_options_init(les_sampler_options* options, size_t struct_size) {
  const les_sampler_options defaults = default_options();
  return les::capi::init_options(options, struct_size, &defaults, sizeof(defaults), kOptionsMinBytes);
}

les_status les_sampler_new(const les_sampler_options* options, les_sampler** sampler) {
  LES_REQUIRE(sampler);
  return guard([&]() -> les_status {
    les_sampler_options known = default_options();
    if (options != nullptr) {
      const les_status status = les::capi::copy_options(options, sizeof(known), kOptionsMinBytes, &known);
      if (status != LES_OK) return status;
    }
    if (const les_status s = check_range("temperature", known.temperature, HUGE_VALF); s != LES_OK) return s;
    if (const les_status s = check_range("top_p", known.top_p, 1); s != LES_OK) return s;
    if (const les_status s = check_range("min_p", known.min_p, 1); s != LES_OK) return s;
    if (known.top_k < 0) return fail(LES_INVALID_ARGUMENT, "top_k is %d; expected 0 or more", known.top_k);
    auto made = std::make_unique<les_sampler>();
    made->options = known;
    made->state = known.seed;
    if (known.seed == 0) {
      std::random_device device;
      made->state = (static_cast<uint64_t>(device()) << 32) ^ device();
    }
    *sampler = made.release();
    return LES_OK;
  });
}

void les_sampler_free(les_sampler* sampler) { delete sampler; }

les_status les_sampler_choose(les_sampler* sampler, const float* logits, size_t n_vocab, int32_t* token) {
  LES_REQUIRE(sampler);
  LES_REQUIRE(logits);
  LES_REQUIRE(token);
  if (n_vocab == 0 || n_vocab > INT32_MAX) return fail(LES_INVALID_ARGUMENT, "there are %zu logits", n_vocab);
  return guard([&]() -> les_status {
    size_t best = 0;
    for (size_t i = 0; i < n_vocab; ++i) {
      if (std::isnan(logits[i])) return fail(LES_INVALID_ARGUMENT, "the logit of token %zu is not a number", i);
      if (logits[i] > logits[best]) best = i;
    }
    if (std::isinf(logits[best])) {
      return fail(LES_INVALID_ARGUMENT, "the largest logit is %g, of token %zu; expected a finite number", logits[best],
                  best);
    }
    if (sampler->options.temperature == 0) {
      *token = static_cast<int32_t>(best);
      return LES_OK;
    }
    truncate(sampler, logits, n_vocab, logits[best]);
    // From here on the weights are those of the temperature.
    double total = 0;
    for (size_t i = 0; i < sampler->ids.size(); ++i) {
      const double below = static_cast<double>(logits[sampler->ids[i]]) - static_cast<double>(logits[best]);
      sampler->weights[i] = std::exp(below / static_cast<double>(sampler->options.temperature));
      total += sampler->weights[i];
    }
    double left = next_uniform(&sampler->state) * total;
    size_t chosen = 0;
    while (chosen + 1 < sampler->ids.size() && left >= sampler->weights[chosen]) left -= sampler->weights[chosen++];
    *token = sampler->ids[chosen];
    return LES_OK;
  });
}

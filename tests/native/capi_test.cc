// The C API beside the engine it wraps: same tokens, every error, and nothing that gets through as an exception.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "capi/capi.h"
#include "engine/engine.h"
#include "engine/session.h"
#include "les.h"

namespace {

std::string golden_path() {
  const char* shared = std::getenv("LES_SHARED");
  return std::string(shared != nullptr ? shared : LES_SOURCE_DIR "/../shared") + "/goldens/qwen3moe/model.gguf";
}

les_options test_options() {
  les_options options;
  REQUIRE(les_options_init(&options, sizeof(options)) == LES_OK);
  options.threads = 2;
  options.context = 96;
  return options;
}

// Everything of one model, freed in the order that is hardest: the model first.
struct Fixture {
  les_model* model = nullptr;
  les_session* session = nullptr;
  les_tokenizer* tokenizer = nullptr;
  explicit Fixture(const les_options& options = test_options()) {
    REQUIRE_MESSAGE(les_model_open(golden_path().c_str(), &options, &model) == LES_OK, les_error_message());
    REQUIRE(les_session_new(model, &session) == LES_OK);
    REQUIRE(les_model_tokenizer(model, &tokenizer) == LES_OK);
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;
  ~Fixture() {
    les_model_free(model);
    les_session_free(session);
    les_tokenizer_free(tokenizer);
  }
};

int32_t likeliest(const float* logits, size_t n) {
  return static_cast<int32_t>(std::max_element(logits, logits + n) - logits);
}

std::vector<int32_t> greedy(les_session* session, std::vector<int32_t> feed, int n_tokens) {
  std::vector<int32_t> out;
  for (int i = 0; i < n_tokens; ++i) {
    REQUIRE_MESSAGE(les_session_eval(session, feed.data(), feed.size()) == LES_OK, les_error_message());
    const float* logits = nullptr;
    size_t n_vocab = 0;
    REQUIRE(les_session_logits(session, &logits, &n_vocab) == LES_OK);
    out.push_back(likeliest(logits, n_vocab));
    feed = {out.back()};
  }
  return out;
}

bool says(const char* part) { return std::strstr(les_error_message(), part) != nullptr; }

const std::vector<int32_t> kPrompt = {5, 17, 101, 33, 250, 7, 8, 9, 44, 12};

}  // namespace

TEST_CASE("without a handle every function says so or does nothing") {
  size_t n = 0;
  int32_t token = 0;
  float logit = 0;
  const char* text = nullptr;
  const float* logits = nullptr;
  const int32_t* tokens = nullptr;
  les_plan plan;
  les_stats stats;
  les_model_info info;
  les_session* session = nullptr;
  les_tokenizer* tokenizer = nullptr;
  les_detokenizer* detokenizer = nullptr;
  les_model* model = nullptr;
  const les_status statuses[] = {
      les_options_init(nullptr, sizeof(les_options)),
      les_plan_memory(nullptr, nullptr, &plan, sizeof(plan)),
      les_plan_memory("x", nullptr, nullptr, 0),
      les_model_open(nullptr, nullptr, &model),
      les_model_open("x", nullptr, nullptr),
      les_model_plan(nullptr, &plan, sizeof(plan)),
      les_model_set_memory(nullptr, 0),
      les_model_get_info(nullptr, &info, sizeof(info)),
      les_model_metadata_key(nullptr, 0, &text),
      les_model_metadata(nullptr, "x", nullptr, 0, &n),
      les_model_chat_template(nullptr, &text, &n),
      les_model_stats(nullptr, &stats, sizeof(stats)),
      les_model_reset_stats(nullptr),
      les_model_tokenizer(nullptr, &tokenizer),
      les_tokenizer_open(nullptr, &tokenizer),
      les_tokenizer_encode(nullptr, "x", 1, 0, nullptr, 0, &n),
      les_tokenizer_decode(nullptr, &token, 1, 0, nullptr, 0, &n),
      les_tokenizer_find(nullptr, "x", &token),
      les_detokenizer_new(nullptr, 0, &detokenizer),
      les_detokenizer_add(nullptr, 1, &text, &n),
      les_detokenizer_finish(nullptr, &text, &n),
      les_session_new(nullptr, &session),
      les_session_eval(nullptr, &token, 1),
      les_session_eval_rows(nullptr, &token, 1, 1, &logit, 1),
      les_session_logits(nullptr, &logits, &n),
      les_session_tokens(nullptr, &tokens, &n),
      les_session_rewind(nullptr, 0),
      les_session_save(nullptr, "x"),
      les_session_load(nullptr, "x"),
      les_session_cancel(nullptr),
      les_sampler_options_init(nullptr, sizeof(les_sampler_options)),
      les_sampler_new(nullptr, nullptr),
      les_sampler_choose(nullptr, &logit, 1, &token),
  };
  for (const les_status status : statuses) CHECK(status == LES_INVALID_ARGUMENT);
  CHECK(std::string(les_error_message()) == "les_sampler_choose: sampler is NULL");
  les_model_free(nullptr);
  les_session_free(nullptr);
  les_tokenizer_free(nullptr);
  les_detokenizer_free(nullptr);
  les_sampler_free(nullptr);
  CHECK(les_session_position(nullptr) == 0);
  CHECK(les_tokenizer_n_vocab(nullptr) == 0);
  CHECK(les_tokenizer_bos(nullptr) == LES_NO_TOKEN);
  CHECK(les_tokenizer_is_end(nullptr, 0) == 0);
  CHECK(les_model_n_metadata(nullptr) == 0);
}

TEST_CASE("statuses have names and the version is that of the header") {
  CHECK(les_api_version() == LES_API_VERSION);
  CHECK(std::strlen(les_version()) >= 5);
  CHECK(std::string(les_status_name(LES_BUDGET)) == "memory budget");
  CHECK(std::string(les_status_name(LES_CONTEXT_FULL)) == "context full");
  CHECK(std::string(les_status_name(LES_BUFFER_TOO_SMALL)) == "buffer too small");
  CHECK(std::string(les_status_name(static_cast<les_status>(12))) == "unknown");
}

TEST_CASE("no exception passes, and a long message is cut at a character") {
  CHECK(les::capi::guard([]() -> les_status { throw std::bad_alloc(); }) == LES_OUT_OF_MEMORY);
  CHECK(les::capi::guard([]() -> les_status { throw std::runtime_error("odd"); }) == LES_INTERNAL);
  CHECK(std::string(les_error_message()) == "odd");
  CHECK(les::capi::guard([]() -> les_status { throw 1; }) == LES_INTERNAL);
  std::string umlauts;
  for (int i = 0; i < 2000; ++i) umlauts += "ä";
  les::capi::fail(LES_IO, std::string_view(umlauts));
  CHECK(std::string(les_error_message()) == umlauts.substr(0, 1022));
}

TEST_CASE("messages belong to their thread") {
  les::capi::fail(LES_IO, "here");
  std::string there = "unset";
  std::thread([&] { there = les_error_message(); }).join();
  CHECK(there.empty());
  CHECK(std::string(les_error_message()) == "here");
}

TEST_CASE("structures of other sizes") {
  struct Longer {
    les_options known;
    uint64_t unknown;
  } longer;
  CHECK(les_options_init(&longer.known, sizeof(longer)) == LES_OK);
  CHECK(longer.known.struct_size == sizeof(longer));
  CHECK(longer.unknown == 0);
  les_model* model = nullptr;
  CHECK(les_model_open("/no/such/file.gguf", &longer.known, &model) == LES_NOT_FOUND);
  longer.unknown = 1;
  CHECK(les_model_open("/no/such/file.gguf", &longer.known, &model) == LES_UNSUPPORTED);
  les_options options{};  // not initialised
  CHECK(les_model_open("/no/such/file.gguf", &options, &model) == LES_INVALID_ARGUMENT);
  CHECK(says("struct_size 0"));
  CHECK(les_options_init(&options, 8) == LES_INVALID_ARGUMENT);
  const uint32_t from[2] = {1, 2};
  uint32_t to[3] = {9, 9, 9};
  les::capi::copy_result(from, sizeof(from), to, 4);
  CHECK((to[0] == 1 && to[1] == 9));
  les::capi::copy_result(from, sizeof(from), to, sizeof(to));
  CHECK((to[1] == 2 && to[2] == 0));
}

TEST_CASE("bad files and bad options") {
  les_model* model = nullptr;
  les_tokenizer* tokenizer = nullptr;
  les_plan plan;
  CHECK(les_model_open("/no/such/file.gguf", nullptr, &model) == LES_NOT_FOUND);
  CHECK(says("/no/such/file.gguf"));
  CHECK(les_plan_memory("/no/such/file.gguf", nullptr, &plan, sizeof(plan)) == LES_NOT_FOUND);
  CHECK(les_tokenizer_open("/no/such/file.gguf", &tokenizer) == LES_NOT_FOUND);
  CHECK(les_model_open(LES_SOURCE_DIR "/LICENSE", nullptr, &model) == LES_CORRUPT);
  les_options options = test_options();
  options.kv_type = 3;
  CHECK(les_model_open("x", &options, &model) == LES_INVALID_ARGUMENT);
  CHECK(says("kv_type is 3"));
  options = test_options();
  options.threads = -1;
  CHECK(les_model_open("x", &options, &model) == LES_INVALID_ARGUMENT);
  CHECK(model == nullptr);
}

TEST_CASE("the sampler: greedy, truncations, seeds, and logits that are none") {
  std::vector<float> logits = {0, 3, 1, 3, -2};
  les_sampler_options options;
  REQUIRE(les_sampler_options_init(&options, sizeof(options)) == LES_OK);
  CHECK(options.temperature == 0.8F);
  const auto draw = [&](int n) {
    les_sampler* sampler = nullptr;
    REQUIRE(les_sampler_new(&options, &sampler) == LES_OK);
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    for (int32_t& token : tokens) REQUIRE(les_sampler_choose(sampler, logits.data(), logits.size(), &token) == LES_OK);
    les_sampler_free(sampler);
    return tokens;
  };
  const auto counts = [&](int n) {
    std::map<int32_t, int> count;
    for (const int32_t token : draw(n)) ++count[token];
    return count;
  };
  options.temperature = 0;
  CHECK(draw(3) == std::vector<int32_t>{1, 1, 1});

  options = {sizeof(options), 7, 1.0F, 1.0F, 0.0F, 0};
  CHECK(draw(50) == draw(50));
  constexpr int kDraws = 20000;
  auto count = counts(kDraws);
  double total = 0;
  for (const float l : logits) total += std::exp(static_cast<double>(l));
  for (int32_t i = 0; i < 5; ++i) {
    const double p = std::exp(static_cast<double>(logits[static_cast<size_t>(i)])) / total;
    CHECK(std::abs(count[i] - p * kDraws) < 5 * std::sqrt(p * kDraws));
  }
  options.top_k = 3;
  count = counts(2000);
  CHECK((count.size() == 3 && count.count(2) == 1 && count.count(0) == 0));
  options.top_k = 0;
  options.top_p = 0.5F;  // token 1 has less than half, 1 and 3 together more
  count = counts(2000);
  CHECK((count.size() == 2 && count.count(1) == 1 && count.count(3) == 1));
  options.top_p = 1;
  options.min_p = 0.1F;  // e^-2 = 0.135 stays, e^-3 = 0.05 goes
  CHECK(counts(2000).size() == 3);
  options.min_p = 0;
  options.temperature = 100;
  CHECK(counts(2000)[4] > 300);
  options.seed = 0;
  CHECK(draw(50) != draw(50));

  les_sampler* sampler = nullptr;
  options.temperature = NAN;
  CHECK(les_sampler_new(&options, &sampler) == LES_INVALID_ARGUMENT);
  options.temperature = 1;
  options.top_p = 1.5F;
  CHECK(les_sampler_new(&options, &sampler) == LES_INVALID_ARGUMENT);
  CHECK(std::string(les_error_message()) == "top_p is 1.5; expected 0 to 1");
  options.top_p = 0;  // the likeliest alone
  CHECK(counts(20) == std::map<int32_t, int>{{1, 20}});
  REQUIRE(les_sampler_new(nullptr, &sampler) == LES_OK);
  int32_t token = -5;
  logits[2] = NAN;
  CHECK(les_sampler_choose(sampler, logits.data(), logits.size(), &token) == LES_INVALID_ARGUMENT);
  logits.assign(5, -INFINITY);
  CHECK(les_sampler_choose(sampler, logits.data(), logits.size(), &token) == LES_INVALID_ARGUMENT);
  CHECK(les_sampler_choose(sampler, logits.data(), 0, &token) == LES_INVALID_ARGUMENT);
  CHECK(token == -5);
  les_sampler_free(sampler);
}

TEST_SUITE_BEGIN("model");

TEST_CASE("tokens are the engine's, in memory and at the floor") {
  les::EngineOptions engine_opts;
  engine_opts.threads = 2;
  engine_opts.context = 96;
  auto engine = les::open_engine(golden_path(), engine_opts, {});
  REQUIRE(engine.is_ok());
  auto session = (*engine)->make_session();
  REQUIRE(session.is_ok());
  const auto n_vocab = static_cast<size_t>((*engine)->config().n_vocab);
  std::vector<float> rows(kPrompt.size() * n_vocab);
  REQUIRE((*session)->eval(kPrompt, static_cast<int>(kPrompt.size()), rows.data()).is_ok());
  std::vector<float> last(rows.end() - static_cast<ptrdiff_t>(n_vocab), rows.end());
  std::vector<int32_t> expected;
  for (int i = 0; i < 24; ++i) {
    expected.push_back(likeliest(last.data(), n_vocab));
    REQUIRE((*session)->eval({&expected.back(), 1}, 1, last.data()).is_ok());
  }

  les_options options = test_options();
  les_plan plan;
  REQUIRE(les_plan_memory(golden_path().c_str(), &options, &plan, sizeof(plan)) == LES_OK);
  for (const uint64_t memory_bytes : {uint64_t{0}, plan.floor_bytes}) {
    options.memory_bytes = memory_bytes;
    Fixture f(options);
    CHECK(greedy(f.session, kPrompt, 24) == expected);
    REQUIRE(les_session_rewind(f.session, 0) == LES_OK);
    std::vector<float> copied(rows.size());
    REQUIRE(les_session_eval_rows(f.session, kPrompt.data(), kPrompt.size(), kPrompt.size(), copied.data(),
                                  copied.size()) == LES_OK);
    CHECK(copied == rows);
    les_stats stats;
    REQUIRE(les_model_stats(f.model, &stats, sizeof(stats)) == LES_OK);
    CHECK(stats.prefill_tokens == 2 * kPrompt.size());
    CHECK(stats.decode_tokens == 23);
    CHECK(stats.flash_bytes > 0);
    CHECK(stats.peak_bytes > 0);
    CHECK(std::string(stats.reader).find("pread") == 0);
    REQUIRE(les_model_reset_stats(f.model) == LES_OK);
    REQUIRE(les_model_stats(f.model, &stats, sizeof(stats)) == LES_OK);
    CHECK(stats.n_steps == 0);
  }
}

TEST_CASE("the plan adds up, refuses below its floor, and follows the budget") {
  les_options options = test_options();
  les_plan plan;
  REQUIRE(les_plan_memory(golden_path().c_str(), &options, &plan, sizeof(plan)) == LES_OK);
  CHECK(plan.fits == 1);
  CHECK(plan.context == 96);
  CHECK(plan.total_bytes == plan.process_bytes + plan.trunk_bytes + plan.tokenizer_bytes + plan.kv_bytes +
                                plan.state_bytes + plan.scratch_bytes + plan.reader_bytes + plan.cache_bytes);
  options.memory_bytes = plan.floor_bytes - 1;
  les_plan below;
  REQUIRE(les_plan_memory(golden_path().c_str(), &options, &below, sizeof(below)) == LES_OK);
  CHECK(below.fits == 0);
  CHECK(std::strlen(below.message) > 0);
  les_model* model = nullptr;
  CHECK(les_model_open(golden_path().c_str(), &options, &model) == LES_BUDGET);
  CHECK(model == nullptr);

  Fixture f;
  CHECK(les_model_set_memory(f.model, 1) == LES_BUDGET);
  REQUIRE(les_model_set_memory(f.model, plan.floor_bytes) == LES_OK);
  les_plan now;
  REQUIRE(les_model_plan(f.model, &now, sizeof(now)) == LES_OK);
  CHECK(now.budget_bytes == plan.floor_bytes);
  CHECK(now.cache_bytes < plan.cache_bytes);
}

TEST_CASE("positions, rewinding, a full context, and calls that leave no trace") {
  Fixture f;
  const auto expected = greedy(f.session, kPrompt, 6);
  CHECK(les_session_position(f.session) == kPrompt.size() + 5);
  const int32_t* tokens = nullptr;
  size_t n = 0;
  REQUIRE(les_session_tokens(f.session, &tokens, &n) == LES_OK);
  CHECK(std::vector<int32_t>(tokens, tokens + kPrompt.size()) == kPrompt);

  const float* logits = nullptr;
  REQUIRE(les_session_rewind(f.session, kPrompt.size() - 1) == LES_OK);
  CHECK(les_session_logits(f.session, &logits, &n) == LES_NOT_FOUND);
  CHECK(les_session_rewind(f.session, SIZE_MAX) == LES_INVALID_ARGUMENT);
  CHECK(greedy(f.session, {kPrompt.back()}, 6) == expected);

  const size_t position = les_session_position(f.session);
  const std::vector<int32_t> many(96 - position + 1, 3);
  CHECK(les_session_eval(f.session, many.data(), many.size()) == LES_CONTEXT_FULL);
  CHECK(les_session_eval(f.session, many.data(), SIZE_MAX) == LES_CONTEXT_FULL);
  CHECK(les_session_eval(f.session, many.data(), 0) == LES_INVALID_ARGUMENT);
  const int32_t odd = 312;
  CHECK(les_session_eval(f.session, &odd, 1) == LES_INVALID_ARGUMENT);
  CHECK(says("token 312"));
  float one = 0;
  CHECK(les_session_eval_rows(f.session, many.data(), 1, 1, &one, 1) == LES_BUFFER_TOO_SMALL);
  CHECK(les_session_eval_rows(f.session, many.data(), 1, 2, &one, 1) == LES_INVALID_ARGUMENT);
  CHECK(les_session_position(f.session) == position);
  CHECK(les_session_eval_rows(f.session, many.data(), many.size() - 1, 0, nullptr, 0) == LES_OK);
  CHECK(les_session_eval(f.session, many.data(), 1) == LES_CONTEXT_FULL);
}

TEST_CASE("a saved session goes on as before, a damaged one changes nothing") {
  const char* folder = std::getenv("TMPDIR");
  std::string path = std::string(folder == nullptr ? "/tmp" : folder) + "/les-session-XXXXXX";
  std::fclose(fdopen(mkstemp(path.data()), "wb"));
  Fixture f;
  const auto first = greedy(f.session, kPrompt, 4);
  REQUIRE(les_session_save(f.session, path.c_str()) == LES_OK);
  const auto expected = greedy(f.session, {first.back()}, 8);
  les_session* other = nullptr;
  REQUIRE(les_session_new(f.model, &other) == LES_OK);
  REQUIRE_MESSAGE(les_session_load(other, path.c_str()) == LES_OK, les_error_message());
  CHECK(les_session_position(other) == kPrompt.size() + 3);
  CHECK(greedy(other, {first.back()}, 8) == expected);
  CHECK(les_session_load(other, golden_path().c_str()) == LES_CORRUPT);
  CHECK(les_session_load(other, "/no/such/session") != LES_OK);
  CHECK(les_session_save(other, "/no/such/folder/session") == LES_IO);
  CHECK(les_session_position(other) == kPrompt.size() + 11);
  les_session_free(other);
  std::remove(path.c_str());
}

TEST_CASE("metadata, template and facts") {
  Fixture f;
  les_model_info info;
  REQUIRE(les_model_get_info(f.model, &info, sizeof(info)) == LES_OK);
  CHECK(std::string(info.architecture) == "qwen3moe");
  CHECK((info.n_vocab == 312 && info.n_layers == 4 && info.n_experts == 16 && info.n_experts_used == 4));
  CHECK((info.n_moe_layers == 4 && info.context == 96 && info.threads == 2));
  char text[64];
  size_t n = 0;
  const auto value = [&](const char* key) {
    return les_model_metadata(f.model, key, text, sizeof(text), &n) == LES_OK ? std::string(text, n)
                                                                              : std::string(les_error_message());
  };
  CHECK(value("general.name") == "Tiny qwen3moe");
  CHECK(value("qwen3moe.block_count") == "4");
  CHECK(value("qwen3moe.rope.freq_base") == "1000000");
  CHECK(value("tokenizer.ggml.add_bos_token") == "false");
  CHECK(les_model_metadata(f.model, "no.such.key", text, sizeof(text), &n) == LES_NOT_FOUND);
  CHECK(les_model_metadata(f.model, "tokenizer.ggml.tokens", text, sizeof(text), &n) == LES_UNSUPPORTED);
  CHECK(les_model_metadata(f.model, "tokenizer.ggml.token_type", text, sizeof(text), &n) == LES_BUFFER_TOO_SMALL);
  CHECK(n > 3 * 312 - 2);
  CHECK(les_model_metadata(f.model, "general.name", text, 13, &n) == LES_BUFFER_TOO_SMALL);  // no room for the NUL
  CHECK(les_model_metadata(f.model, "general.name", text, 14, &n) == LES_OK);
  bool has_name = false;
  for (size_t i = 0; i < les_model_n_metadata(f.model); ++i) {
    const char* key = nullptr;
    REQUIRE(les_model_metadata_key(f.model, i, &key) == LES_OK);
    has_name = has_name || std::string(key) == "general.name";
  }
  CHECK(has_name);
  const char* jinja = nullptr;
  CHECK(les_model_metadata_key(f.model, les_model_n_metadata(f.model), &jinja) == LES_INVALID_ARGUMENT);
  REQUIRE(les_model_chat_template(f.model, &jinja, &n) == LES_OK);
  CHECK(std::string(jinja).find("<|im_start|>") != std::string::npos);
  CHECK(std::strlen(jinja) == n);
}

TEST_CASE("tokenizer: round trips, control tokens on request only, whole characters") {
  les_tokenizer* tokenizer = nullptr;
  REQUIRE(les_tokenizer_open(golden_path().c_str(), &tokenizer) == LES_OK);
  CHECK(les_tokenizer_n_vocab(tokenizer) == 312);
  CHECK(les_tokenizer_eos(tokenizer) == 298);
  CHECK(les_tokenizer_is_end(tokenizer, 298) == 1);
  CHECK(les_tokenizer_is_end(tokenizer, -1) == 0);
  const auto encode = [&](const std::string& text, uint32_t flags) {
    size_t n = 0;
    REQUIRE(les_tokenizer_encode(tokenizer, text.data(), text.size(), flags, nullptr, 0, &n) == LES_OK);
    std::vector<int32_t> ids(n);
    if (n > 0)
      CHECK(les_tokenizer_encode(tokenizer, text.data(), text.size(), flags, ids.data(), n - 1, &n) ==
            LES_BUFFER_TOO_SMALL);
    REQUIRE(les_tokenizer_encode(tokenizer, text.data(), text.size(), flags, ids.data(), n, &n) == LES_OK);
    return ids;
  };
  const std::string text = "Grüße, 日本 🦙🏽 \xF0\x9F\x91\xA9";
  const auto ids = encode(text, 0);
  size_t n = 0;
  std::vector<char> buffer(text.size() + 1);
  CHECK(les_tokenizer_decode(tokenizer, ids.data(), ids.size(), 0, buffer.data(), text.size(), &n) ==
        LES_BUFFER_TOO_SMALL);
  REQUIRE(les_tokenizer_decode(tokenizer, ids.data(), ids.size(), 0, buffer.data(), buffer.size(), &n) == LES_OK);
  CHECK(std::string(buffer.data(), n) == text);

  les_detokenizer* stream = nullptr;
  REQUIRE(les_detokenizer_new(tokenizer, 0, &stream) == LES_OK);
  std::string joined;
  int n_empty = 0;
  const char* piece = nullptr;
  for (const int32_t id : ids) {
    REQUIRE(les_detokenizer_add(stream, id, &piece, &n) == LES_OK);
    CHECK(les::repair_utf8({piece, n}, true, nullptr) == std::string(piece, n));
    CHECK(std::string(piece, n).find("\xEF\xBF\xBD") == std::string::npos);
    n_empty += n == 0 ? 1 : 0;
    joined.append(piece, n);
  }
  CHECK(joined == text);
  CHECK(n_empty >= 6);  // the llama and the woman take several tokens each
  REQUIRE(les_detokenizer_add(stream, encode("🦙", 0).front(), &piece, &n) == LES_OK);
  REQUIRE(les_detokenizer_finish(stream, &piece, &n) == LES_OK);
  CHECK(std::string(piece, n) == "\xEF\xBF\xBD");
  CHECK(les_detokenizer_add(stream, 312, &piece, &n) == LES_INVALID_ARGUMENT);

  int32_t start = 0;
  REQUIRE(les_tokenizer_find(tokenizer, "<|im_start|>", &start) == LES_OK);
  CHECK(encode("<|im_start|>", LES_ENCODE_MARKUP) == std::vector<int32_t>{start});
  CHECK(encode("<|im_start|>", 0).size() > 1);
  CHECK(encode("", 0).empty());
  CHECK(les_tokenizer_find(tokenizer, "no such token", &start) == LES_NOT_FOUND);
  CHECK(les_tokenizer_encode(tokenizer, "a\xFF", 2, 0, nullptr, 0, &n) == LES_INVALID_ARGUMENT);
  CHECK(les_tokenizer_encode(tokenizer, "a", 1, 4, nullptr, 0, &n) == LES_INVALID_ARGUMENT);
  CHECK(les_tokenizer_decode(tokenizer, &start, 1, LES_DECODE_CONTROL, buffer.data(), buffer.size(), &n) == LES_OK);
  CHECK(std::string(buffer.data()) == "<|im_start|>");
  les_tokenizer_free(tokenizer);  // the stream keeps what it needs
  CHECK(les_detokenizer_add(stream, ids[0], &piece, &n) == LES_OK);
  les_detokenizer_free(stream);
}

TEST_CASE("another thread cancels an eval, which leaves the session as it was") {
  les_options options = test_options();
  les_plan plan;
  REQUIRE(les_plan_memory(golden_path().c_str(), &options, &plan, sizeof(plan)) == LES_OK);
  options.memory_bytes = plan.floor_bytes;
  options.flash = "0.001,1,1000";  // 1 MB/s: this prompt takes seconds
  options.prefetch = LES_PREFETCH_OFF;
  Fixture f(options);
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    while (!is_over.load()) {
      les_session_cancel(f.session);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  const les_status status = les_session_eval(f.session, kPrompt.data(), kPrompt.size());
  is_over = true;
  other.join();
  CHECK(status == LES_CANCELLED);
  CHECK(les_session_position(f.session) == 0);
}

TEST_CASE("log and progress reach the caller") {
  struct Heard {
    std::atomic<int> n_lines{0};
    uint64_t done = 0, total = 0;
  } heard;
  les_options options = test_options();
  options.log_data = options.progress_data = &heard;
  options.log = [](void* data, const char* line) {
    if (std::strchr(line, '\n') == nullptr) ++static_cast<Heard*>(data)->n_lines;
  };
  options.progress = [](void* data, uint64_t done, uint64_t total) {
    static_cast<Heard*>(data)->done = done;
    static_cast<Heard*>(data)->total = total;
  };
  const Fixture f(options);
  CHECK(heard.n_lines > 0);
  CHECK((heard.total > 0 && heard.done == heard.total));
}

TEST_CASE("sessions in two threads take turns and give the same tokens") {
  Fixture f;
  const auto expected = greedy(f.session, kPrompt, 12);
  les_session* sessions[2] = {};
  std::vector<int32_t> got[2];
  std::vector<std::thread> threads;
  for (les_session*& session : sessions) REQUIRE(les_session_new(f.model, &session) == LES_OK);
  for (size_t i = 0; i < 2; ++i) threads.emplace_back([&, i] { got[i] = greedy(sessions[i], kPrompt, 12); });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < 2; ++i) {
    CHECK(got[i] == expected);
    les_session_free(sessions[i]);
  }
}

TEST_SUITE_END();

// 77: the tests that need no model passed, the others are skipped.
int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  std::FILE* model = std::fopen(golden_path().c_str(), "rb");
  if (model == nullptr) {
    std::printf("skipped: tests on a model, for there is no %s; set LES_SHARED\n", golden_path().c_str());
    context.addFilter("test-suite-exclude", "model");
    const int result = context.run();
    return result == 0 ? 77 : result;
  }
  std::fclose(model);
  return context.run();
}

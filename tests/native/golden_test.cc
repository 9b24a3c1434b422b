// Whole models against ../shared/goldens (or LES_SHARED), natively: what a cross-compiled build can be checked with.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "engine/session.h"

namespace les {
namespace {

namespace fs = std::filesystem;

struct Array {
  std::string type;  // as numpy spells it: "<f4", "<i4"
  std::string bytes;

  template <typename T>
  std::vector<T> values() const {
    REQUIRE(type == (std::is_same_v<T, float> ? "<f4" : "<i4"));
    std::vector<T> result(bytes.size() / sizeof(T));
    std::memcpy(result.data(), bytes.data(), result.size() * sizeof(T));
    return result;
  }
};

using Npz = std::map<std::string, Array>;

template <typename T>
T number_at(const std::string& bytes, size_t at) {
  T value;
  REQUIRE(at + sizeof(T) <= bytes.size());
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// The arrays of an uncompressed .npz, by its central directory.
Npz read_npz(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string zip((std::istreambuf_iterator<char>(file)), {});
  const size_t end = zip.rfind("PK\5\6");
  REQUIRE(end != std::string::npos);
  const int n_entries = number_at<uint16_t>(zip, end + 10);
  size_t at = number_at<uint32_t>(zip, end + 16);
  Npz arrays;
  for (int i = 0; i < n_entries; ++i) {
    REQUIRE(number_at<uint16_t>(zip, at + 10) == 0);  // stored
    const size_t size_bytes = number_at<uint32_t>(zip, at + 24);
    const size_t name_bytes = number_at<uint16_t>(zip, at + 28);
    const size_t local = number_at<uint32_t>(zip, at + 42);
    const std::string name = zip.substr(at + 46, name_bytes - std::strlen(".npy"));
    const size_t begin = local + 30 + number_at<uint16_t>(zip, local + 26) + number_at<uint16_t>(zip, local + 28);
    const size_t header = begin + 10;
    const size_t data = header + number_at<uint16_t>(zip, begin + 8);
    const size_t type = zip.find("'descr': '", header) + std::strlen("'descr': '");
    arrays[name] = {zip.substr(type, zip.find('\'', type) - type), zip.substr(data, begin + size_bytes - data)};
    at += 46 + name_bytes + number_at<uint16_t>(zip, at + 30) + number_at<uint16_t>(zip, at + 32);
  }
  return arrays;
}

fs::path goldens() {
  const char* shared = std::getenv("LES_SHARED");
  return fs::path(shared != nullptr && shared[0] != '\0' ? shared : LES_DEFAULT_SHARED) / "goldens";
}

std::vector<fs::path> models() {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(goldens(), error)) {
    if (fs::exists(entry.path() / "model.gguf") && fs::exists(entry.path() / "golden.npz"))
      folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

struct Errors {
  double largest = 0, mean = 0;
};

Errors difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  Errors errors;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    errors.largest = std::max(errors.largest, error);
    errors.mean += error / static_cast<double>(a.size());
  }
  return errors;
}

std::vector<float> eval(Session& session, const std::vector<int32_t>& tokens) {
  std::vector<float> logits(tokens.size() * static_cast<size_t>(session.engine().config().n_vocab));
  const Status status = session.eval(tokens, static_cast<int>(tokens.size()), logits.data());
  REQUIRE_MESSAGE(status.is_ok(), status.message());
  return logits;
}

// Logits of the prompt, then of each greedy step.
void check_prompt(Session& session, const Npz& golden, const std::string& prompt, const std::string& suffix) {
  const std::vector<float> expected = golden.at("logits_" + prompt + suffix).values<float>();
  const std::vector<float> steps = golden.at("decode_logits_" + prompt + suffix).values<float>();
  double largest = 0;
  for (const float value : expected) largest = std::max(largest, std::fabs(static_cast<double>(value)));
  double bound = 2e-4 * largest;
  if (const auto noise = golden.find("batch_vs_single_" + prompt); noise != golden.end()) {
    bound = std::max(bound, 3.0 * static_cast<double>(noise->second.values<float>()[0]));
  }
  // These were recorded with GELU looked up in half precision; tests/reference/gemma4.py holds the engine to exact
  // GELU.
  if (session.engine().config().arch == "gemma4") bound = std::max(bound, 4e-3);
  CHECK(difference(eval(session, golden.at("prompt_" + prompt).values<int32_t>()), expected).largest <= bound);
  const std::vector<int32_t> tokens = golden.at("decode_tokens_" + prompt).values<int32_t>();
  const auto n_vocab = static_cast<std::ptrdiff_t>(steps.size() / tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto row = steps.begin() + static_cast<std::ptrdiff_t>(i) * n_vocab;
    CHECK(difference(eval(session, {tokens[i]}), {row, row + n_vocab}).largest <= bound);
  }
}

}  // namespace

TEST_CASE("golden models give their logits") {
  const std::vector<fs::path> folders = models();
  if (folders.empty()) {
    MESSAGE("skipped: no models in " << goldens().string());
    return;
  }
  int n_checked = 0;
  for (const fs::path& folder : folders) {
    const std::string name = folder.filename().string();
    CAPTURE(name);
    const Npz golden = read_npz(folder / "golden.npz");
    if (golden.count("prompt_a") == 0 || golden.count("logits_a") == 0) continue;  // a draft model
    // Quantised files hold what float products give as well; the integer path rounds activations.
    const bool is_quantised = golden.count("logits_a_dequantised") > 0;
    EngineOptions options;
    options.kv_type = KvType::kF32;
    options.context = 160;
    options.threads = 2;
    options.use_float = is_quantised;
    auto engine = open_engine((folder / "model.gguf").string(), options, {});
    if (!engine.is_ok() && engine.status().code() == Code::kUnsupported) continue;  // the Python tests list these
    REQUIRE_MESSAGE(engine.is_ok(), engine.status().message());
    for (const std::string prompt : {"a", "b"}) {
      if (golden.count("prompt_" + prompt) == 0) continue;
      auto session = (*engine)->make_session();
      REQUIRE_MESSAGE(session.is_ok(), session.status().message());
      check_prompt(**session, golden, prompt, is_quantised ? "_dequantised" : "");
    }
    ++n_checked;
    if (!is_quantised) continue;
    options.use_float = false;
    engine = open_engine((folder / "model.gguf").string(), options, {});
    REQUIRE(engine.is_ok());
    auto session = (*engine)->make_session();
    REQUIRE(session.is_ok());
    const std::vector<float> exact = golden.at("logits_a_dequantised").values<float>();
    const Errors ours = difference(eval(**session, golden.at("prompt_a").values<int32_t>()), exact);
    const Errors theirs = difference(golden.at("logits_a").values<float>(), exact);
    CHECK(ours.largest <= 2.0 * theirs.largest);
    CHECK(ours.mean <= 1.5 * theirs.mean);
  }
  MESSAGE(n_checked << " models checked");
  CHECK(n_checked > 0);
}

}  // namespace les

#include <doctest/doctest.h>

#include <vector>

#include "model/state.h"

namespace les {
namespace {

// A recurrence that depends on order and history: s = 3 s + x (mod 2^20), exact in float.
void run(float* state, const float* rows, int count) {
  for (int i = 0; i < count; ++i)
    state[0] = static_cast<float>((static_cast<int>(state[0]) * 3 + static_cast<int>(rows[i])) % (1 << 20));
}

struct Timeline {
  State state;
  float output = 0;   // state after the last token of the last step

  Timeline() { REQUIRE(state.allocate({{1, 4, 4, 0, 0}, {0, 0, 0, 1, 1}}, KvType::kF32, 512).is_ok()); }

  void eval(const std::vector<float>& rows) {
    state.advance(1, rows.data(), static_cast<int>(rows.size()), [&](float* s, const float* r, int count, int first) {
      run(s, r, count);
      if (first >= 0) output = s[0];
    });
    state.commit(static_cast<int>(rows.size()));
  }
};

std::vector<float> make_rows(int n) {
  std::vector<float> rows;
  for (int i = 0; i < n; ++i) rows.push_back(static_cast<float>(1 + (i * 7) % 11));
  return rows;
}

float expected(const std::vector<float>& rows) {
  float s = 0;
  run(&s, rows.data(), static_cast<int>(rows.size()));
  return s;
}

TEST_CASE("steps of any width give the same state") {
  const std::vector<float> rows = make_rows(100);
  for (int width : {1, 2, 7, 16, 24, 25, 60, 100}) {
    Timeline t;
    for (int at = 0; at < 100; at += width) {
      t.eval({rows.begin() + at, rows.begin() + std::min(100, at + width)});
    }
    CHECK(t.output == expected(rows));
  }
}

TEST_CASE("every accept count of a draft block equals a fresh run of the accepted prefix") {
  const std::vector<float> rows = make_rows(64);
  for (int prompt : {1, 5, 23, 24, 25, 40}) {
    for (int block = 1; block <= 17; ++block) {
      for (int accepted = 0; accepted <= block; ++accepted) {
        Timeline t;
        t.eval({rows.begin(), rows.begin() + prompt});
        t.eval({rows.begin() + prompt, rows.begin() + prompt + block});
        REQUIRE(t.state.can_rewind(prompt + accepted));
        t.state.rewind(prompt + accepted);
        t.eval({500});
        std::vector<float> fresh(rows.begin(), rows.begin() + prompt + accepted);
        fresh.push_back(500);
        REQUIRE(t.output == expected(fresh));
      }
    }
  }
}

TEST_CASE("draft, reject and draft again, many times") {
  const std::vector<float> rows = make_rows(8);
  Timeline t;
  std::vector<float> accepted;
  for (int round = 0; round < 40; ++round) {
    t.eval(rows);
    const int keep = round % 9;
    accepted.insert(accepted.end(), rows.begin(), rows.begin() + keep);
    REQUIRE(t.state.can_rewind(static_cast<int>(accepted.size())));
    t.state.rewind(static_cast<int>(accepted.size()));
  }
  t.eval({3});
  accepted.push_back(3);
  CHECK(t.output == expected(accepted));
}

TEST_CASE("what the log does not reach is refused, and a restored copy goes on") {
  const std::vector<float> rows = make_rows(200);
  Timeline t;
  t.eval({rows.begin(), rows.begin() + 50});
  float copy = 0;
  t.state.copy_recurrent(&copy);
  t.eval({rows.begin() + 50, rows.begin() + 150});
  CHECK_FALSE(t.state.can_rewind(50));
  t.state.restore_recurrent(&copy, 50);
  t.eval({rows.begin() + 50, rows.begin() + 200});
  CHECK(t.output == expected(rows));
}

TEST_CASE("cache sizes by type") {
  const StateSpec spec = {{2, 64, 64, 0, 0}};
  CHECK(kv_cache_bytes(spec, KvType::kF32, 100) == 2u * 2 * 64 * 4 * 100);
  CHECK(kv_cache_bytes(spec, KvType::kF16, 100) == 2u * 2 * 64 * 2 * 100);
  CHECK(kv_cache_bytes(spec, KvType::kQ8_0, 160) == 2u * 2 * 68 * 160);
}

}  // namespace
}  // namespace les

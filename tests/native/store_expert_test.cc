// Where experts lie, in plain, fused, gateless and packed files; and files whose experts contradict each other.
#include <doctest/doctest.h>

#include "store/expert_store.h"
#include "store_util.h"

namespace les {
namespace {

constexpr uint64_t kIn = 8, kFf = 4, kExperts = 3;

TestTensor experts(const std::string& name, uint64_t n_in, uint64_t n_out, uint64_t n_expert = kExperts) {
  return {name, {n_in, n_out, n_expert}, 4 * n_in * n_out * n_expert};
}

const TestTensor kGateTensor = experts("blk.1.ffn_gate_exps.weight", kIn, kFf);
const TestTensor kUpTensor = experts("blk.1.ffn_up_exps.weight", kIn, kFf);
const TestTensor kDownTensor = experts("blk.1.ffn_down_exps.weight", kFf, kIn);
const TestTensor kFusedTensor = experts("blk.1.ffn_gate_up_exps.weight", kIn, 2 * kFf);

Result<std::shared_ptr<ExpertStore>> open(const TestFile& file, const std::vector<uint8_t>& bytes) {
  LES_ASSIGN_OR_RETURN(const auto gguf, file.open(bytes));
  return open_expert_store(gguf);
}

void check_refused(const std::vector<uint8_t>& bytes, const char* part, Code code = Code::kCorrupt) {
  const TestFile file;
  const auto store = open(file, bytes);
  REQUIRE_FALSE(store.is_ok());
  CHECK(store.status().code() == code);
  CHECK_MESSAGE(contains(store.status().message(), part), store.status().message());
}

TEST_CASE("plain experts are three extents") {
  const TestFile file;
  const auto store = open(file, make_gguf({}, {kDownTensor, kGateTensor, kUpTensor}));
  REQUIRE_MESSAGE(store.is_ok(), store.status().message());
  const ExpertStore& s = **store;
  REQUIRE(s.n_layers() == 2);
  CHECK_FALSE(s.layer(0).has_experts);
  CHECK(s.layer(1).n_expert == kExperts);
  const auto extents = s.extents({1, 2});
  REQUIRE(extents.size() == 3);
  const char* names[] = {"blk.1.ffn_gate_exps.weight", "blk.1.ffn_up_exps.weight", "blk.1.ffn_down_exps.weight"};
  for (size_t i = 0; i < 3; ++i) {
    CHECK(extents[i].slice == static_cast<int>(i));
    CHECK(extents[i].size_bytes == 128);
    CHECK(extents[i].offset_bytes == s.file().find_tensor(names[i])->offset_bytes + 2 * 128);
    CHECK(extents[i].slot_offset_bytes == 128 * i);
  }
  uint64_t sum = 1;
  CHECK_FALSE(s.checksum({1, 0}, &sum));
}

TEST_CASE("fused experts are gate rows, then up rows, expert by expert") {
  const TestFile file;
  const auto store = open(file, make_gguf({}, {kFusedTensor, kDownTensor}));
  REQUIRE_MESSAGE(store.is_ok(), store.status().message());
  const uint64_t start = (*store)->file().find_tensor("blk.1.ffn_gate_up_exps.weight")->offset_bytes;
  const auto extents = (*store)->extents({1, 2});
  REQUIRE(extents.size() == 3);
  CHECK(extents[kGate].offset_bytes == start + 2 * 256);
  CHECK(extents[kUp].offset_bytes == start + 2 * 256 + 128);
  CHECK((*store)->layer(1).slices[kUp].n_out == kFf);
}

TEST_CASE("experts without a gate, and no experts at all") {
  const TestFile file;
  const auto gateless = open(file, make_gguf({}, {kUpTensor, kDownTensor}));
  REQUIRE(gateless.is_ok());
  CHECK_FALSE((*gateless)->layer(1).slices[kGate].is_present);
  CHECK((*gateless)->extents({1, 0}).size() == 2);
  const auto dense =
      open(file, make_gguf({}, {{"blk.0.ffn_up.weight", {8}, 32}, {"blk.07.ffn_up_exps.weight", {8}, 32}}));
  REQUIRE(dense.is_ok());
  for (uint32_t l = 0; l < (*dense)->n_layers(); ++l) CHECK_FALSE((*dense)->layer(l).has_experts);
}

TEST_CASE("plain experts that contradict each other are refused") {
  check_refused(make_gguf({}, {kGateTensor, kUpTensor}), "no ffn_down_exps");
  check_refused(make_gguf({}, {kGateTensor}), "no ffn_up_exps");
  check_refused(make_gguf({}, {kUpTensor, experts("blk.1.ffn_down_exps.weight", kFf, kIn, 2)}),
                "blk.1.ffn_down_exps.weight");
  check_refused(make_gguf({}, {kUpTensor, experts("blk.1.ffn_down_exps.weight", kFf + 1, kIn)}), "do not fit together");
  check_refused(make_gguf({}, {{"blk.1.ffn_up_exps.weight", {kIn, kFf}, 128}, kDownTensor}), "three dimensions");
  check_refused(make_gguf({}, {experts("blk.1.ffn_gate_up_exps.weight", kIn, 5), kDownTensor}), "an even number");
  // In either order: the halves would be taken from the wrong tensor.
  const TestTensor wide = experts("blk.1.ffn_up_exps.weight", kIn, 2 * kFf);
  check_refused(make_gguf({}, {kFusedTensor, wide, kDownTensor}), "separate gate or up");
  check_refused(make_gguf({}, {wide, kFusedTensor, kDownTensor}), "separate gate or up");
  check_refused(make_gguf({}, {{"blk.0.ffn_up.3.weight", {8}, 32}}), "one tensor an expert", Code::kUnsupported);
}

struct Packed {
  uint32_t version = 1;
  std::vector<uint32_t> types = {0, 0, 0};
  std::vector<uint64_t> offsets = {0, 128, 256}, n_in = {kIn, kIn, kFf}, n_out = {kFf, kFf, kIn},
                        sums = {7, 8, ~uint64_t{0}};
  uint64_t record_bytes = 16384, alignment = 16384;
  uint32_t tensor_type = 24;
  std::vector<TestTensor> more;
};

std::vector<uint8_t> make_packed(const Packed& p) {
  std::vector<TestTensor> tensors = p.more;
  tensors.insert(tensors.begin(),
                 {"blk.1.experts", {p.record_bytes, kExperts}, p.record_bytes * kExperts, p.tensor_type});
  if (p.alignment != 16384) tensors.insert(tensors.begin(), {"first", {8}, 32});
  return make_gguf(
      {number_key("general.alignment", GgufType::kU32, static_cast<uint32_t>(p.alignment)),
       number_key("les.version", GgufType::kU32, p.version), array_key("les.blk.1.types", GgufType::kU32, p.types),
       array_key("les.blk.1.offsets", GgufType::kU64, p.offsets), array_key("les.blk.1.n_in", GgufType::kU64, p.n_in),
       array_key("les.blk.1.n_out", GgufType::kU64, p.n_out), array_key("les.blk.1.checksums", GgufType::kU64, p.sums)},
      tensors, p.alignment);
}

TEST_CASE("a packed expert is one extent with a checksum") {
  const TestFile file(".les");
  const auto store = open(file, make_packed({}));
  REQUIRE_MESSAGE(store.is_ok(), store.status().message());
  const auto extents = (*store)->extents({1, 2});
  REQUIRE(extents.size() == 1);
  CHECK(extents[0].offset_bytes % 16384 == 0);
  CHECK(extents[0].offset_bytes == (*store)->file().find_tensor("blk.1.experts")->offset_bytes + 2 * 16384);
  CHECK(extents[0].slice == -1);
  uint64_t sum = 0;
  CHECK((*store)->checksum({1, 2}, &sum));
  CHECK(sum == ~uint64_t{0});
}

TEST_CASE("packed files that contradict themselves are refused") {
  const auto with = [](auto change) {
    Packed p;
    change(p);
    return make_packed(p);
  };
  check_refused(with([](Packed& p) { p.version = 2; }), "les format version 2", Code::kUnsupported);
  check_refused(with([](Packed& p) { p.types[1] = 1000; }), "quant type 1000", Code::kUnsupported);
  check_refused(with([](Packed& p) { p.types[1] = 26; }), "quant type 26", Code::kUnsupported);  // I32 is no weight
  check_refused(with([](Packed& p) { p.types = {0, 0}; }), "les.blk.1.types has 2 entries; expected 3");
  check_refused(with([](Packed& p) { p.sums.pop_back(); }), "les.blk.1.checksums has 2 entries; expected 3");
  check_refused(with([](Packed& p) { p.types[kDown] = ~0u; }), "no up or no down");
  check_refused(with([](Packed& p) { p.offsets[1] = 64; }), "does not fit");                  // overlaps gate
  check_refused(with([](Packed& p) { p.offsets[1] = 129; }), "does not fit");                 // off its alignment
  check_refused(with([](Packed& p) { p.offsets[2] = 16384; }), "does not fit");
  check_refused(with([](Packed& p) { p.offsets[2] = ~uint64_t{63}; }), "does not fit");
  check_refused(with([](Packed& p) { p.n_out[0] = ~uint64_t{0}; }), "does not fit");
  check_refused(with([](Packed& p) { p.n_in[0] = ~uint64_t{0}; }), "does not fit");
  check_refused(with([](Packed& p) { p.n_in[0] = 0; }), "does not fit");
  check_refused(with([](Packed& p) { p.n_out[kDown] = 1u << 20; }), "does not fit");
  check_refused(with([](Packed& p) { p.n_in[kDown] = kFf - 1; }), "do not fit together");
  check_refused(with([](Packed& p) { p.record_bytes = 8192; }), "expected multiples of 16384");
  check_refused(with([](Packed& p) { p.alignment = 32; }), "expected multiples of 16384");
  check_refused(with([](Packed& p) { p.tensor_type = 25, p.record_bytes = 32768; }), "truncated");
  check_refused(with([](Packed& p) { p.more = {experts("blk.0.ffn_up_exps.weight", kIn, kFf)}; }), "unpacked experts");
}

}  // namespace
}  // namespace les

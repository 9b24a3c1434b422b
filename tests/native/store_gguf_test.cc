// Headers of every kind, and every way to break one.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>

#include "base/checksum.h"
#include "store_util.h"

namespace les {
namespace {

const std::vector<TestTensor> kTwo = {{"a.weight", {8, 3}, 96}, {"b.weight", {5}, 20}};

// The error of a file that must be refused: typed, one line, and naming the file.
Status refused(const std::string& path) {
  const auto file = open_gguf(path);
  REQUIRE_FALSE(file.is_ok());
  CHECK(contains(file.status().message(), path));
  CHECK_FALSE(contains(file.status().message(), "\n"));
  CHECK(file.status().message().size() < 400);
  return file.status();
}

void check_refused(const TestFile& file, const std::vector<uint8_t>& bytes, Code code, const char* part) {
  const Status status = refused(file.write(bytes));
  CHECK_MESSAGE(status.code() == code, status.message());
  CHECK_MESSAGE(contains(status.message(), part), status.message());
}

TEST_CASE("checksums are XXH3-64, at every change of its method") {
  const std::pair<size_t, uint64_t> kKnown[] = {
      {0, 0x2d06800538d394c2},    {1, 0x4c5cca45d0f4811f},    {3, 0x6e3e2670e61106ac},   {4, 0x5c4c63133443d03f},
      {8, 0xf9fd4dd0b04d78f5},    {9, 0x7c20df9712c26edf},    {16, 0x86abf6baccea0858},  {17, 0xb58bf5dc5022d071},
      {128, 0x10d17f72c0ccba41},  {129, 0x1648bdc3db49d1a2},  {240, 0xb6cfaf343fab81e6}, {241, 0x956cae592c67279e},
      {1024, 0x70bd377d9574f4bb}, {1025, 0x66c4487c41e127a7}, {5000, 0xe4007929540f095c}};
  for (const auto& [n, expected] : kKnown) {
    std::vector<uint8_t> data(n);
    for (size_t i = 0; i < n; ++i) data[i] = static_cast<uint8_t>(i * 131 + 7);
    CHECK_MESSAGE(xxh3_64(data.data(), n) == expected, n);
  }
}

TEST_CASE("every key type is read with its exact value") {
  ByteWriter nested;  // [[1, 2], []]
  nested.u32(9);
  nested.u64(2);
  nested.u32(4);
  nested.u64(2);
  nested.u32(1);
  nested.u32(2);
  nested.u32(4);
  nested.u64(0);
  const TestFile file;
  const auto opened = file.open(make_gguf({number_key<uint8_t>("u8", GgufType::kU8, 255),
                                           number_key<int8_t>("i8", GgufType::kI8, -128),
                                           number_key<uint16_t>("u16", GgufType::kU16, 65535),
                                           number_key<int16_t>("i16", GgufType::kI16, -32768),
                                           number_key<uint32_t>("u32", GgufType::kU32, ~0u),
                                           number_key<int32_t>("i32", GgufType::kI32, INT32_MIN),
                                           number_key<uint64_t>("u64", GgufType::kU64, ~0ull),
                                           number_key<int64_t>("i64", GgufType::kI64, INT64_MIN),
                                           number_key<float>("f32", GgufType::kF32, 0.1f),
                                           number_key<double>("f64", GgufType::kF64, 0.1),
                                           number_key<uint8_t>("bool", GgufType::kBool, 1),
                                           text_key("text", std::string("a\0b", 3)),
                                           array_key<int16_t>("array", GgufType::kI16, {-1, 2}),
                                           array_key<uint8_t>("none", GgufType::kString, {}),
                                           {"nested", GgufType::kArray, nested.bytes}},
                                          kTwo));
  REQUIRE_MESSAGE(opened.is_ok(), opened.status().message());
  const GgufFile& g = **opened;
  CHECK(*g.get_u64("u8") == 255);
  CHECK(*g.get_u64("u16") == 65535);
  CHECK(*g.get_u64("u32") == ~0u);
  CHECK(*g.get_u64("u64") == ~0ull);
  CHECK(*g.get_integers("i8") == std::vector<int64_t>{-128});
  CHECK(*g.get_integers("i16") == std::vector<int64_t>{-32768});
  CHECK(*g.get_integers("i32") == std::vector<int64_t>{INT32_MIN});
  CHECK(*g.get_integers("i64") == std::vector<int64_t>{INT64_MIN});
  CHECK(*g.get_f64("f32") == static_cast<double>(0.1f));
  CHECK(*g.get_f64("f64") == 0.1);
  CHECK(*g.get_bool("bool"));
  CHECK(*g.get_string("text") == std::string("a\0b", 3));
  CHECK(*g.get_integers("array") == std::vector<int64_t>{-1, 2});
  CHECK(g.get_strings("none")->empty());
  const auto& outer = std::get<std::shared_ptr<GgufArray>>(g.find("nested")->data);
  REQUIRE(outer->size() == 2);
  CHECK(std::get<std::shared_ptr<GgufArray>>(outer->arrays[0].data)->integers == std::vector<int64_t>{1, 2});

  CHECK(g.get_u64("i8").status().code() == Code::kCorrupt);
  CHECK(contains(g.get_u64("text").status().message(), "of type string; expected an integer"));
  CHECK(contains(g.get_u64("absent").status().message(), "key absent is missing"));
  CHECK_FALSE(g.get_strings("array").is_ok());

  REQUIRE(g.tensors().size() == 2);
  CHECK(g.find_tensor("a.weight")->size_bytes == 96);
  CHECK(g.find_tensor("b.weight")->offset_bytes == g.find_tensor("a.weight")->offset_bytes + 96);
}

TEST_CASE("a file cut at any byte is refused") {
  uint64_t data_start = 0;
  const auto bytes =
      make_gguf({text_key("general.architecture", "test"), array_key<uint32_t>("list", GgufType::kU32, {1, 2, 3})},
                kTwo, 32, &data_start);
  const TestFile file;
  REQUIRE(file.open(bytes).is_ok());
  for (size_t n = 0; n < data_start + 96 + 20; ++n) {
    const Status status = refused(file.write(bytes, n));
    CHECK_MESSAGE(status.code() == Code::kCorrupt, n);
  }
  CHECK(open_gguf(file.write(bytes, data_start + 96 + 20)).is_ok());  // padding behind the last tensor may be missing
  const Status status = refused(file.write(bytes, data_start + 95));
  CHECK_MESSAGE(contains(status.message(), "tensor a.weight needs 96 bytes"), status.message());
}

TEST_CASE("counts and lengths beyond the file are refused before anything is allocated") {
  const TestFile file;
  const auto good = make_gguf({text_key("k", "v")}, kTwo);
  for (const uint64_t huge : {uint64_t{1} << 32, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} / 13 + 1}) {
    for (const size_t at : {8u, 16u, 24u, 37u}) {  // tensors, keys, length of the key's name, length of its text
      auto bytes = good;
      store_le(bytes.data() + at, huge);
      CHECK(refused(file.write(bytes)).code() == Code::kCorrupt);
    }
    for (const uint32_t element : {0u, 6u, 8u, 9u, 12u}) {
      ByteWriter array;
      array.u32(element);
      array.u64(huge);
      check_refused(file, make_gguf({{"list", GgufType::kArray, array.bytes}}, {}), Code::kCorrupt, "an array counts");
    }
  }
}

TEST_CASE("a large file does not make a large header believable") {
  constexpr uint64_t kSize = uint64_t{4} << 30;  // sparse
  const TestFile file;
  for (const uint32_t element : {0u, 8u, 9u, 10u}) {
    ByteWriter array;
    array.u32(element);
    array.u64(uint64_t{200} << 20);
    const std::string& path = file.write(make_gguf({{"list", GgufType::kArray, array.bytes}}, {}));
    REQUIRE(truncate(path.c_str(), kSize) == 0);
    CHECK(contains(refused(path).message(), "more than a header of at most"));
  }
  auto bytes = make_gguf({text_key("k", "v")}, {});
  store_le(bytes.data() + 24, uint64_t{3} << 30);
  const std::string& path = file.write(bytes);
  REQUIRE(truncate(path.c_str(), kSize) == 0);
  CHECK(refused(path).code() == Code::kCorrupt);
}

TEST_CASE("arrays nest to a depth, no further") {
  for (const int depth : {4, 5, 6, 1000}) {
    ByteWriter value;
    for (int i = 0; i < depth - 1; ++i) {
      value.u32(9);
      value.u64(1);
    }
    value.u32(0);
    value.u64(0);
    const TestFile file;
    const auto opened = file.open(make_gguf({{"deep", GgufType::kArray, value.bytes}}, {}));
    CHECK(opened.is_ok() == (depth <= 5));
    if (!opened.is_ok()) CHECK(contains(opened.status().message(), "nests arrays deeper"));
  }
}

TEST_CASE("tensors that cannot be are refused by name") {
  const TestFile file;
  const auto one = [](TestTensor tensor) { return make_gguf({}, {std::move(tensor)}); };
  const uint64_t big = uint64_t{1} << 32;
  check_refused(file, one({"t", {big, big}, 32}), Code::kCorrupt, "tensor t");
  check_refused(file, one({"t", {uint64_t{1} << 62}, 32}), Code::kCorrupt, "tensor t");
  check_refused(file, one({"t", {big, big - 1}, 32}), Code::kCorrupt, "tensor t");
  check_refused(file, one({"t", {4, 0}, 32}), Code::kCorrupt, "dimension 1 is 0");
  check_refused(file, one({"t", {1, 1, 1, 1, 1}, 32}), Code::kCorrupt, "5 dimensions");
  check_refused(file, one({"t", {}, 32}), Code::kCorrupt, "0 dimensions");
  check_refused(file, one({"t", {33}, 34, 8}), Code::kCorrupt, "tensor t");  // no whole blocks of Q8_0
  for (const uint32_t type : {4u, 31u, 63u, 64u, 1000u, ~0u}) {
    check_refused(file, one({"t", {32}, 128, type}), Code::kUnsupported,
                  ("quant type " + std::to_string(type)).c_str());
  }
  check_refused(file, one({"t", {8}, 32, 0, 1}), Code::kCorrupt, "not a multiple of the alignment 32");
  check_refused(file, one({"t", {8}, 32, 0, ~uint64_t{31}}), Code::kCorrupt, "truncated");
  check_refused(file, one({"t", {8}, 32, 0, uint64_t{1} << 63}), Code::kCorrupt, "truncated");
  check_refused(file, make_gguf({}, {{"a", {16}, 64}, {"a", {8}, 32}}), Code::kCorrupt, "tensor a appears twice");
  auto overlapping = std::vector<TestTensor>{{"a", {16}, 64}, {"b", {8}, 32}};
  overlapping[1].offset_shift = ~uint64_t{31};  // 32 bytes back
  check_refused(file, make_gguf({}, overlapping), Code::kCorrupt, "overlap");
}

TEST_CASE("keys that cannot be are refused by name") {
  const TestFile file;
  check_refused(file, make_gguf({text_key("k", "v"), text_key("k", "w")}, {}), Code::kCorrupt, "key k appears twice");
  check_refused(file, make_gguf({{"k", static_cast<GgufType>(13), {0}}}, {}), Code::kCorrupt, "value type 13");
  for (const uint32_t alignment : {0u, 3u, 48u, 1u << 21, ~0u}) {
    check_refused(file, make_gguf({number_key<uint32_t>("general.alignment", GgufType::kU32, alignment)}, {}),
                  Code::kCorrupt, "general.alignment");
  }
  check_refused(file, make_gguf({text_key("general.alignment", "32")}, {}), Code::kCorrupt, "general.alignment");
  check_refused(file, make_gguf({{"k\xff\n\x1b[2J" + std::string(5000, 'x'), static_cast<GgufType>(77), {0}}}, {}),
                Code::kCorrupt, "key k???[2Jxxx");
}

TEST_CASE("other files and other versions are told apart") {
  const TestFile file;
  auto bytes = make_gguf({}, kTwo);
  bytes[4] = 2;
  CHECK(file.open(bytes).is_ok());
  for (const uint8_t version : {0, 1, 4}) {
    bytes[4] = version;
    check_refused(file, bytes, Code::kUnsupported, "known: 2 and 3");
  }
  store_le(bytes.data() + 4, uint32_t{3} << 24);
  check_refused(file, bytes, Code::kUnsupported, "big-endian");
  bytes[0] = 'g';
  check_refused(file, bytes, Code::kCorrupt, "not a GGUF file");
  CHECK(open_gguf("/nonexistent.gguf").status().code() == Code::kNotFound);
  CHECK_FALSE(open_gguf("/dev/null").is_ok());
}

class Shards {
 public:
  Shards() : folder_(write_temporary({0}, "")) {
    std::filesystem::remove(folder_);
    std::filesystem::create_directory(folder_);
  }
  ~Shards() { std::filesystem::remove_all(folder_); }
  Shards(const Shards&) = delete;
  Shards& operator=(const Shards&) = delete;

  std::string path(int number, int count) const { return folder_ + format_text("/m-%05d-of-%05d.gguf", number, count); }
  const std::string& folder() const { return folder_; }
  void write(int number, int count, uint16_t split_no, const std::vector<TestTensor>& tensors, int32_t n_tensors = 2,
             uint16_t split_count = 3) const {
    std::vector<TestKey> keys = {number_key<uint16_t>("split.no", GgufType::kU16, split_no),
                                 number_key<uint16_t>("split.count", GgufType::kU16, split_count),
                                 number_key<int32_t>("split.tensors.count", GgufType::kI32, n_tensors)};
    if (number == 1) keys.push_back(text_key("general.architecture", "test"));
    const auto bytes = make_gguf(keys, tensors);
    std::FILE* file = std::fopen(path(number, count).c_str(), "wb");
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    std::fclose(file);
  }

 private:
  std::string folder_;
};

TEST_CASE("any shard, or the folder, opens all; what does not belong together is refused") {
  const Shards shards;
  const auto all = [&] {
    shards.write(1, 3, 0, {});  // metadata alone
    shards.write(2, 3, 1, {kTwo[0]});
    shards.write(3, 3, 2, {kTwo[1]});
  };
  all();
  for (const std::string& path : {shards.path(1, 3), shards.path(2, 3), shards.path(3, 3), shards.folder()}) {
    const auto opened = open_gguf(path);
    REQUIRE_MESSAGE(opened.is_ok(), opened.status().message());
    CHECK((*opened)->shards().size() == 3);
    CHECK((*opened)->find_tensor("b.weight")->file_idx == 2);
    CHECK(*(*opened)->get_string("general.architecture") == "test");
  }
  for (const int missing : {1, 2, 3}) {
    std::filesystem::remove(shards.path(missing, 3));
    for (const std::string& path : {shards.path(missing == 1 ? 2 : 1, 3), shards.folder()}) {
      const Status status = open_gguf(path).status();
      CHECK(status.code() == Code::kNotFound);
      CHECK_MESSAGE(contains(status.message(), shards.path(missing, 3)), status.message());
    }
    all();
  }
  shards.write(3, 3, 1, {kTwo[1]});
  CHECK(contains(open_gguf(shards.folder()).status().message(), "split.no is 1; expected 2"));
  shards.write(3, 3, 2, {kTwo[0]});
  CHECK(contains(open_gguf(shards.folder()).status().message(), "appears twice"));
  shards.write(3, 3, 2, {});
  CHECK(contains(open_gguf(shards.folder()).status().message(), "split.tensors.count says 2"));
  all();
  shards.write(1, 3, 0, {}, 2, 4);
  CHECK(contains(open_gguf(shards.folder()).status().message(), "says 4 shards"));
  all();
  std::filesystem::rename(shards.path(2, 3), shards.folder() + "/renamed.gguf");
  CHECK(contains(open_gguf(shards.folder() + "/renamed.gguf").status().message(), "one of 3 shards"));
}

}  // namespace
}  // namespace les

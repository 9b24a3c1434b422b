#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <thread>

#include "io/make_reader.h"
#include "io_test_util.h"

namespace les {
namespace {

constexpr uint64_t kReadBytes = 256 * kKiB;

struct Fixture {
  explicit Fixture(const FlashModel& model) : temp(16 * kReadBytes) {
    Result<std::unique_ptr<File>> opened = open_file(temp.path(), {.try_direct = false, .keep_cached = true});
    REQUIRE(opened.is_ok());
    file = std::move(*opened);
    memory.resize(64 * kReadBytes);
    Result<std::unique_ptr<AsyncReader>> made = make_reader({.kind = "pread", .flash = model, .clock = &clock}, &sink);
    REQUIRE_MESSAGE(made.is_ok(), made.status().message());
    reader = std::move(*made);
  }
  void submit(uint64_t tag, ReadClass read_class = ReadClass::kDemand, uint64_t size_bytes = kReadBytes) {
    reader->submit(
        {file.get(), (tag % 16) * kReadBytes, size_bytes, memory.data() + tag * kReadBytes, tag, read_class});
  }
  TempFile temp;
  std::unique_ptr<File> file;
  std::vector<uint8_t> memory;
  SteppingClock clock;
  CollectingSink sink;
  std::unique_ptr<AsyncReader> reader;  // last: it goes first
};

TEST_CASE("flash is named or numbered") {
  CHECK(*parse_flash("ufs4") == FlashModel{2.0e9, 2, 150'000});
  CHECK(*parse_flash("nvme") == FlashModel{6.0e9, 32, 80'000});
  CHECK(*parse_flash("emmc") == FlashModel{0.3e9, 1, 300'000});
  CHECK(*parse_flash("1.5,4,200") == FlashModel{1.5e9, 4, 200'000});
  CHECK(*parse_flash("0.001,1,0") == FlashModel{1e6, 1, 0});
  for (const char* bad : {"", "ufs", "1", "1,2", "1,2,3,", "1,2,3,4", "0,1,1", "-1,1,1", "1,0,1", "1,1.5,1", "1,1,-1",
                          "nan,1,1", "inf,1,1", "1,99999,1", "a,b,c", ",,"}) {
    CAPTURE(bad);
    const Result<FlashModel> refused = parse_flash(bad);
    CHECK(refused.status().code() == Code::kInvalidArgument);
    CHECK(refused.status().message().find("expected ufs4, nvme, emmc") != std::string::npos);
  }
  CollectingSink sink;
  CHECK(make_reader({.flash = FlashModel{0, 1, 0}}, &sink).status().code() == Code::kInvalidArgument);
}

TEST_CASE("N reads take the modelled time, to the nanosecond") {
  constexpr int kReads = 24;
  SUBCASE("one lane pays the latency of each read") {
    const FlashModel emmc = *parse_flash("emmc");
    Fixture fixture(emmc);
    for (int i = 0; i < kReads; i++) fixture.submit(static_cast<uint64_t>(i));
    fixture.clock.release();
    REQUIRE(fixture.sink.wait_for(kReads));
    const int64_t each_ns = emmc.latency_ns + transfer_ns(emmc, kReadBytes);
    for (int i = 0; i < kReads; i++) {
      const ReadCompletion done = fixture.sink.get(static_cast<uint64_t>(i));
      CHECK(done.status.is_ok());
      CHECK(done.start_ns == i * each_ns);
      CHECK(done.end_ns == (i + 1) * each_ns);
    }
    CHECK(fixture.reader->stats().busy_ns == kReads * each_ns);
  }
  SUBCASE("two lanes hide it behind the other's transfer when that is long enough") {
    const FlashModel model{1e9, 2, 150'000};  // 262 us on the bus
    Fixture fixture(model);
    for (int i = 0; i < kReads; i++) fixture.submit(static_cast<uint64_t>(i));
    fixture.clock.release();
    REQUIRE(fixture.sink.wait_for(kReads));
    for (int i = 0; i < kReads; i++) {
      CHECK(fixture.sink.get(static_cast<uint64_t>(i)).end_ns ==
            model.latency_ns + (i + 1) * transfer_ns(model, kReadBytes));
    }
  }
  SUBCASE("two lanes cannot hide it behind a shorter one") {
    const FlashModel ufs4 = *parse_flash("ufs4");  // 131 us on the bus, 150 us latency
    Fixture fixture(ufs4);
    for (int i = 0; i < 4; i++) fixture.submit(static_cast<uint64_t>(i));
    fixture.clock.release();
    REQUIRE(fixture.sink.wait_for(4));
    const int64_t bus_ns = transfer_ns(ufs4, kReadBytes);
    const int64_t first = ufs4.latency_ns + bus_ns, second = first + bus_ns;
    CHECK(fixture.sink.get(0).end_ns == first);
    CHECK(fixture.sink.get(1).end_ns == second);
    CHECK(fixture.sink.get(2).start_ns == first);
    CHECK(fixture.sink.get(2).end_ns == first + ufs4.latency_ns + bus_ns);
    CHECK(fixture.sink.get(3).start_ns == second);
  }
  SUBCASE("many lanes share one bandwidth") {
    const FlashModel nvme = *parse_flash("nvme");
    Fixture fixture(nvme);
    for (int i = 0; i < kReads; i++) fixture.submit(static_cast<uint64_t>(i));
    fixture.clock.release();
    REQUIRE(fixture.sink.wait_for(kReads));
    int64_t last_ns = 0;
    for (int i = 0; i < kReads; i++) last_ns = std::max(last_ns, fixture.sink.get(static_cast<uint64_t>(i)).end_ns);
    CHECK(last_ns == nvme.latency_ns + kReads * transfer_ns(nvme, kReadBytes));
    const ReaderStats stats = fixture.reader->stats();
    CHECK(stats.n_reads == kReads);
    CHECK(stats.read_bytes == kReads * kReadBytes);
    CHECK(stats.n_buffered == kReads);
    CHECK(stats.busy_ns == last_ns);
  }
}

TEST_CASE("demand overtakes prefetches that wait; promotion and cancellation reach them") {
  const FlashModel model{1e9, 2, 100'000};
  Fixture fixture(model);
  for (uint64_t tag = 0; tag < 6; tag++) fixture.submit(tag, ReadClass::kPrefetch);  // 0 and 1 are in service at once
  fixture.submit(10, ReadClass::kDemand);
  fixture.reader->promote(5);
  fixture.reader->promote(0);
  fixture.reader->cancel(3);
  fixture.reader->cancel(1);
  fixture.clock.release();
  REQUIRE(fixture.sink.wait_for(7));
  std::vector<uint64_t> order = fixture.sink.order();
  CHECK(fixture.sink.get(3).status.code() == Code::kCancelled);
  order.erase(std::find(order.begin(), order.end(), 3u));
  CHECK(order == std::vector<uint64_t>{0, 1, 10, 5, 2, 4});
  CHECK(fixture.sink.get(10).end_ns == model.latency_ns + 3 * transfer_ns(model, kReadBytes));
  CHECK(first_wrong(fixture.memory.data() + 10 * kReadBytes, 10 * kReadBytes, kReadBytes) == -1);
}

TEST_CASE("nothing is delivered before its time") {
  Fixture fixture(*parse_flash("nvme"));
  fixture.submit(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the page cache answered long ago; the clock stands
  CHECK(fixture.sink.count() == 0);
  fixture.clock.release();
  CHECK(fixture.sink.wait_for(1));
}

TEST_CASE("a destroyed simulation completes what is in service and cancels the rest") {
  Fixture fixture({1e9, 2, 100'000});
  for (uint64_t tag = 0; tag < 10; tag++) fixture.submit(tag, ReadClass::kPrefetch);
  fixture.clock.release();
  fixture.reader.reset();
  CHECK(fixture.sink.count() == 10);
  CHECK(fixture.sink.n_twice() == 0);
  CHECK(fixture.sink.get(0).status.is_ok());
}

TEST_CASE("on the machine's clock a burst takes at least the modelled time and leaves the processor alone") {
  const FlashModel model{0.5e9, 2, 150'000};
  TempFile temp(16 * kReadBytes);
  const Result<std::unique_ptr<File>> file = open_file(temp.path(), {.try_direct = false, .keep_cached = true});
  REQUIRE(file.is_ok());
  std::vector<uint8_t> memory(16 * kReadBytes);
  CollectingSink sink;
  const Result<std::unique_ptr<AsyncReader>> reader = make_reader({.flash = model}, &sink);
  REQUIRE(reader.is_ok());
  const int64_t begin_ns = now_ns();
  const std::clock_t cpu_begin = std::clock();
  for (uint64_t tag = 0; tag < 16; tag++) {
    (*reader)->submit(
        {file->get(), tag * kReadBytes, kReadBytes, memory.data() + tag * kReadBytes, tag, ReadClass::kDemand});
  }
  REQUIRE(sink.wait_for(16));
  const int64_t took_ns = now_ns() - begin_ns;
  const double cpu_s = static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
  const int64_t modelled_ns = model.latency_ns + 16 * transfer_ns(model, kReadBytes);
  CHECK(took_ns >= modelled_ns);
  MESSAGE("16 reads: modelled " << modelled_ns / 1000 << " us, took " << took_ns / 1000 << " us, " << cpu_s * 1e3
                                << " ms of CPU");
  CHECK(first_wrong(memory.data(), 0, 16 * kReadBytes) == -1);
}

}  // namespace
}  // namespace les

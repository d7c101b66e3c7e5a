// The ring of a rank's last operations and its file, and the comparison of the operations of many ranks, up
// to 512 of them.
#include "watch/flight_recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/strict_json.h"
#include "scratch_folder.h"
#include "watch/root_cause.h"

namespace argosy::watch {
namespace {

using Way = FlightOp::Way;

FlightOp all_gather(int64_t elements) {
    return {.kind = "all-gather", .elements = elements, .type = ElementType::BFloat16};
}
FlightOp reduce_scatter(int64_t elements) {
    return {.kind = "reduce-scatter", .elements = elements, .type = ElementType::Float32};
}
FlightOp message(Way way, int peer, int64_t elements) {
    return {.kind = way == Way::Send ? "send" : "receive",
            .way = way,
            .peer = peer,
            .elements = elements,
            .type = ElementType::Float32};
}

FlightSpan add(FlightRecorder& recorder, int group, const FlightOp& op) {
    FlightSpan span;
    recorder.add(group, op, span);
    return span;
}

std::vector<int> ranks_from(int first, int stride, int count) {
    std::vector<int> ranks(count);
    for (int i = 0; i < count; ++i) ranks[i] = first + i * stride;
    return ranks;
}

TEST(FlightRecorder, WritesTheLastOperationsOfAllGroups) {
    constexpr int kNumOps = 3000;
    FlightRecorder recorder(2);
    const int shard = recorder.open("dp \"shard\"", {0, 2, 4, 6}), pipe = recorder.open("pp", {2, 3});
    FlightSpan launch;
    for (int i = 0; i < kNumOps; ++i) recorder.add(shard, all_gather(100 + i), launch);
    launch.set_ended();
    add(recorder, shard, {.kind = "broadcast", .peer = 4, .elements = 0, .type = ElementType::Int64});
    add(recorder, pipe, message(Way::Receive, 3, 77));
    FlightSpan graph;
    recorder.add(shard, {.kind = recorder.kept("forward")}, graph, FlightState::InGraph);

    const auto file = parse_json(recorder.json("now", 8), "the file");
    EXPECT_EQ(file["format"], "argosy flight");
    EXPECT_EQ(file["version"], 1);
    EXPECT_EQ(file["hang"], "now");
    EXPECT_EQ(file["rank"], 2);
    EXPECT_EQ(file["ranks"], 8);
    ASSERT_EQ(file["groups"].size(), 2U);
    EXPECT_EQ(file["groups"][0]["name"], "dp \"shard\"");
    EXPECT_EQ(file["groups"][0]["members"], "0:2*4");
    const auto& ops = file["operations"];
    ASSERT_EQ(ops.size(), size_t{FlightRecorder::kMaxEntries});
    const size_t num_old = ops.size() - 3;
    for (size_t i = 0; i < num_old; ++i) {
        const size_t number = kNumOps - num_old + i;
        ASSERT_EQ(ops[i]["number"], number);
        ASSERT_EQ(ops[i]["elements"], 100 + number);
        ASSERT_EQ(ops[i]["state"], "ended");
    }
    EXPECT_EQ(ops[0]["group"], 0);
    EXPECT_EQ(ops[0]["kind"], "all-gather");
    EXPECT_EQ(ops[0]["type"], "bf16");
    EXPECT_FALSE(ops[0].contains("peer"));
    EXPECT_GE(ops[0]["seconds_ago"].get<double>(), ops[1]["seconds_ago"].get<double>());
    EXPECT_EQ(ops[num_old]["peer"], 4);
    EXPECT_EQ(ops[num_old]["elements"], 0);
    EXPECT_EQ(ops[num_old]["state"], "under way");
    EXPECT_EQ(ops[num_old + 1]["group"], 1);
    EXPECT_EQ(ops[num_old + 1]["number"], 0);
    EXPECT_EQ(ops[num_old + 1]["peer"], 3);
    EXPECT_EQ(ops[num_old + 2]["kind"], "forward");
    EXPECT_EQ(ops[num_old + 2]["state"], "in a graph");
    EXPECT_FALSE(ops[num_old + 2].contains("elements"));
}

TEST(FlightRecorder, EndsOnlyTheOperationsOfALaunch) {
    FlightRecorder recorder(0);
    const int group = recorder.open("tp", {0, 1});
    add(recorder, group, all_gather(1));
    const FlightSpan second = add(recorder, group, all_gather(2));
    add(recorder, group, all_gather(3));
    second.set_ended();
    FlightSpan().set_ended();  // no operations
    const auto file = parse_json(recorder.json("", 2), "the file");
    std::vector<std::string> states;
    for (const auto& op : file["operations"]) states.push_back(op["state"]);
    EXPECT_EQ(states, (std::vector<std::string>{"under way", "ended", "under way"}));
}

TEST(FlightRecorder, NoLaunchEndsOperationsThatReplacedItsOwn) {
    FlightRecorder recorder(0);
    const int group = recorder.open("tp", {0, 1});
    const FlightSpan first = add(recorder, group, all_gather(1));
    for (int64_t i = 0; i < FlightRecorder::kMaxEntries; ++i) add(recorder, group, all_gather(2));
    first.set_ended();
    const auto file = parse_json(recorder.json("", 2), "the file");
    for (const auto& op : file["operations"]) ASSERT_EQ(op["state"], "under way");
}

TEST(FlightRecorder, IsReadWhileOperationsAreAdded) {
    FlightRecorder recorder(0);
    const int group = recorder.open("tp", {0, 1});
    std::atomic<bool> ends = false;
    std::thread writer([&] {
        for (int64_t i = 0; !ends; ++i) add(recorder, group, all_gather(i)).set_ended();
    });
    for (int i = 0; i < 20; ++i) {
        for (const StreamOps& stream : parse_streams(recorder.streams()))
            ASSERT_LE(std::ssize(stream.ops), FlightRecorder::kMaxEntries);
        int64_t last = -1;
        const auto file = parse_json(recorder.json("", 2), "the file");
        for (const auto& op : file["operations"]) {
            ASSERT_TRUE(last < 0 || op["number"] == last + 1);
            last = op["number"];
            ASSERT_EQ(op["elements"], last);
        }
    }
    ends = true;
    writer.join();
}

/// The bound is for slow machines under sanitizers; the time is printed.
TEST(FlightRecorder, TakesAnOperationInAFractionOfAMicrosecond) {
    constexpr int kNumOps = 200000;
    constexpr double kMaxSeconds = 20e-6;
    FlightRecorder recorder(0);
    const int group = recorder.open("dp_shard", {0, 1}), pipe = recorder.open("pp", {0, 1});
    const double start = seconds_now();
    for (int i = 0; i < kNumOps / 2; ++i) {
        add(recorder, group, reduce_scatter(i)).set_ended();
        add(recorder, pipe, message(Way::Send, 1, i)).set_ended();
    }
    const double seconds = (seconds_now() - start) / kNumOps;
    std::printf("%.0f ns for an operation and its end\n", seconds * 1e9);
    RecordProperty("nanoseconds", static_cast<int>(seconds * 1e9));
    EXPECT_LT(seconds, kMaxSeconds);
}

TEST(StreamOps, AreThoseThatTheRingHolds) {
    FlightRecorder recorder(0);
    const int group = recorder.open("tp", {0, 1});
    for (int64_t i = 0; i < FlightRecorder::kMaxEntries + 4; ++i) add(recorder, group, all_gather(5));
    add(recorder, group, message(Way::Send, 1, 7));
    const std::vector<StreamOps> streams = parse_streams(recorder.streams());
    ASSERT_EQ(streams.size(), 2U);
    EXPECT_EQ(streams[0].first, 5);
    EXPECT_EQ(std::ssize(streams[0].ops), FlightRecorder::kMaxEntries - 1);
    EXPECT_EQ(streams[0].ops.back().what, "all-gather of 5 bf16");
    EXPECT_GE(streams[0].ops.front().seconds_ago, 0);
    EXPECT_EQ(streams[0].noun + " 5 " + streams[0].place, "collective 5 over tp");
    EXPECT_EQ(streams[1].ops.at(0).what, "send of 7 fp32");
    EXPECT_EQ(streams[1].noun + " 0 " + streams[1].place, "message 0 from rank 0 to rank 1 over tp");
    EXPECT_NE(streams[0].key, streams[1].key);
    for (const char* wrong : {"what is this", "1f\tcollective\tover tp", "1f\tcollective\tover tp\tx",
                              "1f\tcollective\tover tp\t0\tx"})
        EXPECT_ANY_THROW(parse_streams(wrong)) << wrong;
    EXPECT_TRUE(parse_streams(FlightRecorder(0).streams()).empty());
}

/// Recorders of ranks 0, 1, ..., each in one group of all ranks.
class Ranks {
  public:
    explicit Ranks(int size) {
        for (int rank = 0; rank < size; ++rank) {
            recorders_.push_back(std::make_unique<FlightRecorder>(rank));
            recorders_.back()->open("dp_shard", ranks_from(0, 1, size));
        }
    }
    void add_to_all(const FlightOp& op, int times = 1) {
        for (int i = 0; i < times; ++i) {
            for (int rank = 0; rank < std::ssize(recorders_); ++rank) add_to(rank, op);
        }
    }
    void add_to(int rank, const FlightOp& op) { add(*recorders_[rank], 0, op); }
    FlightRecorder& operator[](int rank) { return *recorders_[rank]; }
    /// What rank 0 finds out, through the wire format.
    std::string text() const {
        std::map<int, std::vector<StreamOps>> ops;
        for (int rank = 0; rank < std::ssize(recorders_); ++rank)
            ops[rank] = parse_streams(recorders_[rank]->streams());
        return text_of_first_difference(ops);
    }

  private:
    std::vector<std::unique_ptr<FlightRecorder>> recorders_;
};

TEST(FlightComparison, NamesTheFirstOperationOnWhichARankDiffers) {
    Ranks ranks(8);
    ranks.add_to_all(all_gather(64), 12);
    for (int rank = 0; rank < 8; ++rank)
        ranks.add_to(rank, rank == 3 ? reduce_scatter(4096) : all_gather(8192));
    ranks.add_to_all(all_gather(64), 40);
    EXPECT_EQ(
        ranks.text(),
        "rank 3 submitted reduce-scatter of 4096 fp32 as collective 12 over dp_shard, where rank 0 and 6 "
        "others submitted all-gather of 8192 bf16");
}

TEST(FlightComparison, FindsNothingIfRanksAreOnlyBehind) {
    Ranks ranks(3);
    ranks.add_to_all(all_gather(64), 2000);
    for (int i = 0; i < 50; ++i) ranks.add_to(1, reduce_scatter(i));
    for (int i = 0; i < 7; ++i) ranks.add_to(2, reduce_scatter(i));
    EXPECT_EQ(ranks.text(), "");
}

TEST(FlightComparison, SeesKindElementsTypeAndRoot) {
    const FlightOp usual{.kind = "broadcast", .peer = 0, .elements = 1 << 20, .type = ElementType::Float32};
    FlightOp other_root = usual, more = usual, other_type = usual, other_kind = usual;
    other_root.peer = 1;
    more.elements = int64_t{3} << 40;  // differs in high bits only
    other_type.type = ElementType::BFloat16;
    other_kind.kind = "broadcasT";
    for (const FlightOp& op : {other_root, more, other_type, other_kind}) {
        Ranks ranks(2);
        ranks.add_to(0, usual);
        ranks.add_to(1, op);
        const std::string text = ranks.text();
        EXPECT_NE(text.find("rank 1 submitted "), std::string::npos) << text;
        EXPECT_NE(text.find("collective 0 over dp_shard, where rank 0 submitted broadcast of 1048576 fp32"),
                  std::string::npos)
            << text;
    }
}

TEST(FlightComparison, IsOfTheOperationsThatRanksStillHold) {
    Ranks ranks(3);
    ranks.add_to_all(all_gather(64), 10);
    ranks.add_to(2, all_gather(1));
    ranks.add_to_all(all_gather(64), FlightRecorder::kMaxEntries - 1);
    ranks.add_to_all(reduce_scatter(8));
    EXPECT_EQ(ranks.text(),
              "rank 2 submitted all-gather of 64 bf16 as collective 1033 over dp_shard, where rank 0, 1 "
              "submitted reduce-scatter of 8 fp32 (not all ranks have kept those before 11)");
}

TEST(FlightComparison, ComparesSendsWithReceives) {
    Ranks ranks(3);
    for (int i = 0; i < 5; ++i) {  // not in the same order on both sides
        ranks.add_to(0, message(Way::Send, 1, 10 + i));
        ranks.add_to(0, message(Way::Send, 2, 20 + i));
    }
    for (int i = 0; i < 5; ++i) ranks.add_to(1, message(Way::Receive, 0, 10 + i));
    for (int i = 0; i < 4; ++i) ranks.add_to(2, message(Way::Receive, 0, 20 + i));
    ranks.add_to(1, message(Way::Send, 0, 99));  // a stream of its own
    EXPECT_EQ(ranks.text(), "");
    ranks.add_to(2, message(Way::Receive, 0, 25));
    EXPECT_EQ(
        ranks.text(),
        "rank 2 submitted receive of 25 fp32 as message 4 from rank 0 to rank 2 over dp_shard, where rank 0 "
        "submitted send of 24 fp32");
}

TEST(FlightComparison, NamesTheOldestOfSeveralDifferences) {
    Ranks ranks(4);
    for (int rank = 0; rank < 4; ++rank) ranks[rank].open("tp", {0, 1, 2, 3});
    for (const int group : {1, 0}) {
        for (int rank = 0; rank < 4; ++rank) add(ranks[rank], group, all_gather(rank / 2));
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(ranks.text(),
              "rank 2, 3 submitted all-gather of 1 bf16 as collective 0 over tp, where rank 0, 1 submitted "
              "all-gather of 0 bf16");
}

TEST(FlightComparison, TellsGroupsOfTheSameRanksApart) {
    Ranks ranks(2);
    for (int rank = 0; rank < 2; ++rank) ranks[rank].open("dp_shard", {0, 1});
    add(ranks[0], 0, all_gather(1));
    add(ranks[1], 1, all_gather(2));
    EXPECT_EQ(ranks.text(), "");
}

/// The oracle compares the operations themselves.
TEST(FlightComparison, AgreesWithAComparisonOfTheOperations) {
    std::mt19937 random(5);
    int num_found = 0;
    for (int draw = 0; draw < 200; ++draw) {
        const int size = 2 + static_cast<int>(random() % 5);
        const int64_t shared = static_cast<int64_t>(random() % 1500),
                      tail = static_cast<int64_t>(random() % 300);
        Ranks ranks(size);
        ranks.add_to_all(all_gather(8), static_cast<int>(shared));
        std::vector<std::vector<int64_t>> tails(size);
        for (int rank = 0; rank < size; ++rank) {
            const int64_t length = tail - static_cast<int64_t>(random() % 20);
            for (int64_t i = 0; i < length; ++i) {
                tails[rank].push_back(random() % 400 == 0 ? 9 : 8);
                ranks.add_to(rank, all_gather(tails[rank].back()));
            }
        }
        std::optional<size_t> expected;
        for (const auto& a : tails) {
            for (const auto& b : tails) {
                const size_t both = std::min(a.size(), b.size());
                const auto at =
                    std::mismatch(a.begin(), a.begin() + static_cast<int64_t>(both), b.begin()).first;
                const auto number = static_cast<size_t>(at - a.begin());
                if (number < both) expected = std::min(expected.value_or(number), number);
            }
        }
        const std::string text = ranks.text();
        if (!expected) {
            EXPECT_EQ(text, "");
            continue;
        }
        ++num_found;
        EXPECT_NE(text.find(" as collective " + std::to_string(shared + static_cast<int64_t>(*expected)) +
                            " over "),
                  std::string::npos)
            << text << ", expected " << shared << " + " << *expected;
    }
    EXPECT_GT(num_found, 40);
    EXPECT_LT(num_found, 190);
}

constexpr int kNumRanks = 512, kTp = 8, kDp = 16, kStrange = 234, kStrangeOp = 333;

/// A rank of a mesh of tp 8, dp 16, pp 4 with full rings. Rank kStrange sends another operation.
std::unique_ptr<FlightRecorder> simulated_rank(int rank) {
    static const std::vector<int> everyone = ranks_from(0, 1, kNumRanks);
    auto recorder = std::make_unique<FlightRecorder>(rank);
    const int world = recorder->open("world", everyone);
    const int stage = rank / (kTp * kDp) * kTp * kDp;
    const int dp = recorder->open("dp_shard", ranks_from(stage + rank % kTp, kTp, kDp));
    const int tp = recorder->open("tp", ranks_from(rank - rank % kTp, 1, kTp));
    for (int i = 0; i < 400; ++i) {
        const bool strange = rank == kStrange && i == kStrangeOp;
        add(*recorder, dp, strange ? reduce_scatter(4096) : all_gather(8192));
        add(*recorder, tp, reduce_scatter(64));
        add(*recorder, tp, all_gather(64));
        if (i % 100 == 0) add(*recorder, world, all_gather(1));
    }
    return recorder;
}

/// The bound is for slow machines under sanitizers; the time is printed.
TEST(FlightComparison, FindsOneRankAmong512) {
    constexpr double kMaxSeconds = 30;
    constexpr int64_t kMaxBytes = 40'000;
    std::map<int, std::string> texts;
    for (int rank = 0; rank < kNumRanks; ++rank) {
        texts[rank] = simulated_rank(rank)->streams();
        ASSERT_LE(std::ssize(texts[rank]), kMaxBytes);
    }
    const double start = seconds_now();
    std::map<int, std::vector<StreamOps>> ops;
    for (const auto& [rank, text] : texts) ops[rank] = parse_streams(text);
    const std::string found = text_of_first_difference(ops);
    const double seconds = seconds_now() - start;
    std::printf("the operations of %d ranks: %.2f s\n", kNumRanks, seconds);
    RecordProperty("milliseconds", static_cast<int>(seconds * 1e3));
    EXPECT_LT(seconds, kMaxSeconds);
    EXPECT_EQ(
        found,
        "rank 234 submitted reduce-scatter of 4096 fp32 as collective 333 over dp_shard, where rank 130 "
        "and 14 others submitted all-gather of 8192 bf16 (not all ranks have kept those before 60)");
}

class FlightFileTest : public ::testing::Test {
  protected:
    /// Writes a file to `folder` and waits until it is written.
    FlightFile written(const std::filesystem::path& folder, const std::string& text) {
        FlightFile file(folder, 3);
        file.begin(text, [this] { ++num_calls_; });
        for (const double start = seconds_now(); num_calls_ == 0 && seconds_now() - start < 20;)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return file;
    }

    const ScratchFolder folder_;
    std::atomic<int> num_calls_ = 0;
};

TEST_F(FlightFileTest, AppearsInANewFolderAndReplacesAnEarlierOne) {
    for (const std::string text : {"a long first text", "second"}) {
        num_calls_ = 0;
        const FlightFile file = written(folder_ / "run" / "flight", text);
        ASSERT_TRUE(file.is_written());
        EXPECT_EQ(file.error(), "");
        EXPECT_EQ(read_file(folder_ / "run" / "flight" / "rank-3.json"), text);
    }
}

TEST_F(FlightFileTest, SaysWhyItCouldNotBeWritten) {
    write_file(folder_ / "file", "no folder");
    const FlightFile file = written(folder_ / "file" / "flight", "text");
    ASSERT_TRUE(file.is_written());
    EXPECT_NE(file.error().find("Not a directory"), std::string::npos) << file.error();
}

TEST_F(FlightFileTest, IsNotWrittenWithoutAFolder) {
    FlightFile file("", 3);
    EXPECT_FALSE(file.begin("text", [this] { ++num_calls_; }));
    EXPECT_FALSE(file.is_written());
}

}  // namespace
}  // namespace argosy::watch

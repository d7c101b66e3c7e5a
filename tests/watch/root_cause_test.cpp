// The missing ranks, found in reports that the tests write, up to reports of 16,384 ranks.
#include "watch/root_cause.h"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/time_limit.h"
#include "watch/host_waits.h"

namespace argosy::watch {
namespace {

using QueueState = LaunchQueue::QueueState;

constexpr double kTimeout = 100;

QueueState idle(std::string name, std::vector<int> members, int64_t num_begun) {
    QueueState state;
    state.key = group_key(name, members, 0);
    state.name = std::move(name);
    state.members = std::move(members);
    state.num_begun = num_begun;
    state.last = {"broadcast", 4};
    state.last_id = {0, num_begun - 1};
    state.seconds_since_last = 120;
    return state;
}

/// A queue whose GPU has reached `num_begun` operations of the second launch of a graph.
QueueState in_graph(std::string name, std::vector<int> members, int64_t num_begun) {
    QueueState state = idle(std::move(name), std::move(members), 4);
    state.graph = {2, num_begun};
    if (num_begun > 0) state.last_id = {2, num_begun - 1};
    return state;
}

/// A queue with `num_begun` launches, whose last one is under way.
QueueState waiting(std::string name, std::vector<int> members, int64_t num_begun, double seconds,
                   std::string kind = "all-reduce") {
    QueueState state = idle(std::move(name), std::move(members), num_begun);
    state.last = {kind, 8};
    state.seconds_since_last = seconds;
    state.under_way = {{0, num_begun - 1}, {std::move(kind), 8}, seconds};
    return state;
}

/// The same for an operation of a graph.
QueueState waiting_in_graph(std::string name, std::vector<int> members, int64_t num_begun, double seconds) {
    QueueState state = in_graph(std::move(name), std::move(members), num_begun);
    state.under_way = {state.last_id, {"all-gather", 8}, seconds};
    return state;
}

RankReport report(const std::vector<QueueState>& queues) {
    return RankReport::of(queues, {kTimeout, "comm.train_timeout_seconds"});
}

std::string text_of(std::map<int, RankReport> reports, int num_ranks, std::vector<int> unreachable = {}) {
    const auto cause = find_root_cause({num_ranks, std::move(reports), std::move(unreachable)});
    return cause ? cause->message() : "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<int> progression(int first, int stride, int count) {
    std::vector<int> ranks;
    for (int i = 0; i < count; ++i) ranks.push_back(first + i * stride);
    return ranks;
}

TEST(RankSet, IsShortForGroupsOfAMesh) {
    EXPECT_EQ(compress_ranks({5}), "5");
    EXPECT_EQ(compress_ranks({0, 2, 4, 6}), "0:2*4");
    EXPECT_EQ(compress_ranks({3, 2}), "3:-1*2");
    EXPECT_EQ(compress_ranks({0, 1, 2, 3, 16, 17, 18, 19, 32, 33, 34, 35}), "0:1*4:16*3");
    EXPECT_EQ(compress_ranks({1, 2, 4}), "1 2 4");
    EXPECT_EQ(compress_ranks({1, 2, 4, 7}), "1 2 4 7");
}

TEST(RankSet, ExpandsToTheSameRanks) {
    for (const std::vector<int>& ranks : {std::vector<int>{},
                                          {7},
                                          {3, 2},
                                          {1, 2, 4},
                                          {0, 8, 1, 9},
                                          {0, 1, 4, 5, 32, 33, 36, 37},
                                          {9, 5, 1},
                                          progression(3, 8, 2048)}) {
        EXPECT_EQ(expand_ranks(compress_ranks(ranks)), ranks) << compress_ranks(ranks);
    }
}

TEST(RankReport, IsTheSameAfterItsWireFormat) {
    RankReport sent = report({waiting("dp_shard x cp", {0, 7}, 12, 101.5, "all-gather"), idle("tp", {0}, 3),
                              waiting_in_graph("cp", {0, 1}, 5, 3)});
    sent.error = "an error\nof two lines";
    sent.storage = {"writing '/a\tb\nc'", 12.5, 900, "comm.storage_timeout_seconds"};
    const RankReport got = RankReport::parse(sent.text());
    EXPECT_EQ(got.error, "an error of two lines");
    EXPECT_EQ(got.queues, sent.queues);
    EXPECT_EQ(got.last_operation, sent.last_operation);
    EXPECT_EQ(got.seconds_since_last, sent.seconds_since_last);
    ASSERT_EQ(got.waits.size(), 2U);
    EXPECT_EQ(got.waits[0].key, sent.waits[0].key);
    EXPECT_EQ(got.waits[0].operation, "all-gather over dp_shard x cp (operation 11)");
    EXPECT_EQ(got.waits[0].group, "dp_shard x cp");
    EXPECT_EQ(got.waits[0].members, "0:7*2");
    EXPECT_EQ(got.waits[0].work, sent.waits[0].work);
    EXPECT_EQ(got.waits[0].waited_seconds, 101.5);
    EXPECT_EQ(got.waits[0].limit_seconds, kTimeout);
    EXPECT_EQ(got.waits[0].limit_name, "comm.train_timeout_seconds");
    EXPECT_TRUE(got.waits[0].is_late());
    EXPECT_EQ(got.waits[1].id, (LaunchQueue::LaunchId{2, 4}));
    EXPECT_FALSE(got.waits[1].is_late());
    ASSERT_TRUE(got.storage);
    EXPECT_EQ(got.storage->what, "writing '/a b c'");
    EXPECT_EQ(got.storage->waited_seconds, 12.5);
    EXPECT_EQ(got.storage->limit_seconds, 900);
    EXPECT_EQ(got.storage->limit_name, "comm.storage_timeout_seconds");
    EXPECT_FALSE(got.storage->seconds_since_end);
    sent.storage->seconds_since_end = 0;
    EXPECT_EQ(RankReport::parse(sent.text()).storage->seconds_since_end, 0);
    EXPECT_FALSE(RankReport::parse(report({}).text()).storage);
    EXPECT_ANY_THROW(RankReport::parse("what is this"));
}

TEST(RootCause, IsNoneIfNoWaitIsLate) {
    EXPECT_EQ(text_of({{0, report({waiting("tp", {0, 1}, 1, 99)})}, {1, report({idle("tp", {0, 1}, 0)})}}, 2),
              "");
}

TEST(RootCause, IsTheRankThatHasNotReachedTheLaunch) {
    const std::vector<int> members = {0, 1, 2};
    const std::string text = text_of({{0, report({waiting("tp", members, 5, 101)})},
                                      {1, report({waiting("tp", members, 5, 50)})},
                                      {2, report({idle("tp", members, 4)})}},
                                     3);
    EXPECT_EQ(
        text.find("all-reduce over tp (operation 4) of ranks 0, 1, 2: no answer in 100 s; missing: rank 2. "),
        0U)
        << text;
    EXPECT_TRUE(has(text, ". Rank 2 last reached broadcast over tp (operation 3), 120 s ago")) << text;
}

TEST(RootCause, IsTheRankWhoseGpuHasNotReachedAnOperationOfAGraph) {
    const std::vector<int> members = {0, 1, 2, 3};
    QueueState through = idle("dp", members, 5);
    through.graph = {3, 0};
    const std::string text = text_of({{0, report({waiting_in_graph("dp", members, 5, 101)})},
                                      {1, report({in_graph("dp", members, 4)})},
                                      {2, report({in_graph("dp", members, 5)})},
                                      {3, report({through})}},
                                     4);
    EXPECT_TRUE(has(text,
                    "all-gather over dp (operation 4 of graph 2) of ranks 0, 1, 2, 3: no answer in 100 s; "
                    "missing: rank 1. "))
        << text;
    EXPECT_TRUE(has(text, ". Rank 1 last reached broadcast over dp (operation 3 of graph 2), 120 s ago"))
        << text;
}

TEST(RootCause, IsTheRankThatHasNotLaunchedTheGraph) {
    const std::vector<int> members = {0, 1};
    QueueState before = idle("dp", members, 4);
    before.graph = {2, 0};
    EXPECT_TRUE(
        has(text_of({{0, report({waiting_in_graph("dp", members, 1, 101)})}, {1, report({before})}}, 2),
            "missing: rank 1. "));
}

TEST(RootCause, NamesTheOperationAndNotTheLaunchingCall) {
    QueueState call = waiting("world", {0, 1}, 1, 110);
    call.under_way->work = {"forward and backward", 0};
    const std::string text = text_of({{0, report({call, waiting_in_graph("dp", {0, 1}, 1, 101)})},
                                      {1, report({in_graph("dp", {0, 1}, 0)})}},
                                     2);
    EXPECT_EQ(text.find("all-gather over dp"), 0U) << text;
}

TEST(RootCause, IsNoRankThatHasReachedTheLaunch) {
    const std::string text =
        text_of({{0, report({waiting("tp", {0, 1}, 5, 101)})}, {1, report({idle("tp", {0, 1}, 5)})}}, 2);
    EXPECT_TRUE(has(text, "all ranks are waiting: ")) << text;
    EXPECT_FALSE(has(text, "missing")) << text;
}

TEST(RootCause, IsASilentRankThatCanBeAsked) {
    const RankReport own = report({waiting("tp", {0, 1}, 5, 101)});
    EXPECT_TRUE(has(text_of({{0, own}}, 3), "; missing: rank 1, 2. "));
    EXPECT_TRUE(has(text_of({{0, own}}, 3, {2}), "; missing: rank 1. "));
}

TEST(RootCause, IsFoundThroughRanksThatWaitThemselves) {
    // Rank 0 waits for 1, which waits for 2, which waits for nobody.
    const std::string text =
        text_of({{0, report({waiting("dp", {0, 1}, 3, 101)})},
                 {1, report({idle("dp", {0, 1}, 2), waiting("tp", {1, 2}, 9, 90, "all-gather")})},
                 {2, report({idle("tp", {1, 2}, 8)})}},
                3);
    EXPECT_TRUE(has(text, "; missing: rank 2. ")) << text;
    EXPECT_TRUE(has(text, "The others wait for all-gather over tp (operation 8): rank 1")) << text;
}

/// The report of a rank that has not reached the launch of the others because it waits for the file system.
RankReport on_storage(double seconds) {
    RankReport own = report({idle("tp", {0, 1, 2}, 0)});
    own.storage = {"writing 'run/metrics.jsonl'", seconds, 900, "comm.storage_timeout_seconds"};
    return own;
}

TEST(RootCause, IsNoRankThatWaitsForTheFileSystemWithinItsLimit) {
    const RankReport waits = report({waiting("tp", {0, 1, 2}, 1, 800)});
    EXPECT_EQ(text_of({{0, on_storage(790)}, {1, waits}, {2, waits}}, 3), "");
    EXPECT_TRUE(has(text_of({{0, on_storage(0.1)}, {1, waits}, {2, waits}}, 3), "; missing: rank 0."));
}

TEST(RootCause, IsNoRankWhoseLongWaitForTheFileSystemHasJustEnded) {
    const RankReport waits = report({waiting("tp", {0, 1, 2}, 1, 800)});
    const auto text_after = [&](double waited_seconds, double seconds_since_end) {
        RankReport own = on_storage(waited_seconds);
        own.storage->seconds_since_end = seconds_since_end;
        return text_of({{0, own}, {1, waits}, {2, waits}}, 3);
    };
    EXPECT_EQ(text_after(790, 0), "");
    EXPECT_EQ(text_after(950, kTimeout - 1), "");  // beyond its own limit, but the file system has answered
    EXPECT_TRUE(has(text_after(790, kTimeout + 1), "; missing: rank 0."));
    EXPECT_TRUE(has(text_after(0.5, 0), "; missing: rank 0."));
    EXPECT_TRUE(
        has(text_after(1.1, 0.9 * kTimeout), "; missing: rank 0."));  // the others waited before it, too
    RankReport own = on_storage(790);
    own.storage->seconds_since_end = 3;
    const std::string text = text_of({{0, own}, {1, waits}, {2, report({idle("tp", {0, 1, 2}, 0)})}}, 3);
    EXPECT_TRUE(has(text, "; missing: rank 2.")) << text;
    EXPECT_TRUE(has(text, "rank 0 (writing 'run/metrics.jsonl' for 790 s, until 3 s ago)")) << text;
}

TEST(HostWaits, KeepTheLastLongWaitForTheFileSystem) {
    const auto seconds = [](double count) {
        std::this_thread::sleep_for(std::chrono::duration<double>(count));
    };
    HostWaits waits({900, "comm.storage_timeout_seconds"});
    auto wait = std::make_unique<FileWait>("reading 'tokens'");
    waits.poll();
    EXPECT_FALSE(waits.storage()->seconds_since_end);
    seconds(1.1);
    waits.poll();
    wait.reset();
    waits.poll();
    wait = std::make_unique<FileWait>("writing 'a short line'");
    seconds(0.2);
    waits.poll();
    std::optional<StorageWait> storage = waits.storage();
    ASSERT_TRUE(storage && storage->seconds_since_end);
    EXPECT_EQ(storage->what, "reading 'tokens'");
    EXPECT_GE(storage->waited_seconds, 1);
    EXPECT_GE(*storage->seconds_since_end, 0.19);
    EXPECT_FALSE(storage->is_late());
    seconds(1);
    waits.poll();
    storage = waits.storage();
    EXPECT_FALSE(storage->seconds_since_end);
    EXPECT_EQ(storage->what, "writing 'a short line'");
}

TEST(RootCause, IsTheFileSystemAfterItsLimit) {
    const RankReport waits = report({waiting("tp", {0, 1, 2}, 1, 910)});
    const std::string text = text_of({{0, on_storage(901)}, {1, waits}, {2, on_storage(5)}}, 3);
    EXPECT_TRUE(
        text.starts_with("waiting for the file system: rank 0 (writing 'run/metrics.jsonl' for 901 s)"))
        << text;
    EXPECT_TRUE(has(text, "(comm.storage_timeout_seconds sets the limit)")) << text;
    EXPECT_FALSE(has(text, "missing")) << text;
    // Also if no rank waits for another one.
    EXPECT_TRUE(has(text_of({{0, on_storage(901)}}, 1), "waiting for the file system: rank 0"));
}

TEST(RootCause, IsARankThatIsMissingBesideOneThatWaitsForTheFileSystem) {
    const RankReport waits = report({waiting("tp", {0, 1, 2}, 1, 101)});
    const std::string text =
        text_of({{0, on_storage(90)}, {1, waits}, {2, report({idle("tp", {0, 1, 2}, 0)})}}, 3);
    EXPECT_TRUE(has(text, "; missing: rank 2.")) << text;
    EXPECT_TRUE(has(text, ". Waits for the file system: rank 0 (writing 'run/metrics.jsonl' for 90 s)"))
        << text;
}

TEST(RootCause, IsTheRankThatNeverMadeTheGroup) {
    EXPECT_TRUE(has(text_of({{0, report({waiting("tp", {0, 1}, 1, 101)})}, {1, report({})}}, 2),
                    "; missing: rank 1. "));
}

TEST(RootCause, IsADifferentOperationWhetherOrNotARankIsMissing) {
    const RankReport late = report({waiting("tp", {0, 1}, 5, 101)});
    auto found = find_root_cause({2, {{0, late}, {1, late}}, {}});
    ASSERT_TRUE(found);
    found->cause.difference = "rank 1 is strange";
    EXPECT_EQ(
        found->message(),
        "all-reduce over tp (operation 4) of ranks 0, 1: no answer in 100 s; ranks have submitted different "
        "operations: rank 1 is strange (comm.train_timeout_seconds sets the limit)");
    found->cause.missing = {1};
    EXPECT_TRUE(has(found->message(), "missing: rank 1. A missing rank is dead, stuck or much slower; "));
    EXPECT_TRUE(has(found->message(), "Also, ranks have submitted different operations: rank 1 is strange"));
}

TEST(RootCause, NamesTheFolderOfTheFilesAndARankWithoutOne) {
    const Reports reports{.num_ranks = 3, .by_rank = {{0, {}}, {2, {}}}, .unreachable = {}};
    const std::string folder = ". The last operations of the ranks are in run/flight";
    EXPECT_EQ(text_of_files("run/flight", reports, {{0, ""}, {2, ""}}), folder);
    EXPECT_EQ(text_of_files("run/flight", reports, {{0, ""}}),
              folder + "; rank 2 has not written its file yet");
    EXPECT_EQ(text_of_files("run/flight", reports, {{0, "no space"}}),
              folder + "; rank 0 has no file: no space");
}

TEST(RootCause, IsAnErrorOfNcclEvenIfNoWaitIsLate) {
    RankReport failed = report({waiting("tp", {0, 1}, 5, 1)});
    failed.error = "an operation of NCCL failed";
    EXPECT_EQ(text_of({{0, report({})}, {1, failed}}, 2),
              "rank 1 reports: an operation of NCCL failed; missing: rank 0");
    auto found = find_root_cause({2, {{0, report({idle("tp", {0, 1}, 4)})}, {1, failed}}, {}});
    ASSERT_TRUE(found);
    found->cause.difference = "rank 1 is strange";
    found->cause.details += ". The files are in run/flight";
    EXPECT_EQ(found->message(),
              "rank 1 reports: an operation of NCCL failed; missing: rank 0. Also, ranks have submitted "
              "different operations: rank 1 is strange. Rank 0 last reached broadcast over tp (operation 3), "
              "120 s ago. The files are in run/flight");
}

/// A wait of a host, whose transfers need the attention of the other side.
WaitReport host_wait(std::string group, const std::vector<int>& members, double seconds) {
    return {.key = group_key(group, members, -1),
            .operation = "all-reduce over " + group + " (operation 0)",
            .group = group,
            .members = compress_ranks(members),
            .id = {},
            .work = {},
            .needs = Needs::Attention,
            .waited_seconds = seconds,
            .limit_seconds = kTimeout,
            .limit_name = "comm.train_timeout_seconds"};
}
RankReport host_report(std::vector<WaitReport> waits) {
    RankReport made;
    made.waits = std::move(waits);
    return made;
}

TEST(RootCause, OfAHostsWaitIsTheMemberThatDoesNotWait) {
    const auto cause = find_root_cause({.num_ranks = 4,
                                        .by_rank = {{0, host_report({})},
                                                    {1, host_report({host_wait("dp", {1, 2}, 101)})},
                                                    {2, host_report({host_wait("tp", {2, 3}, 50)})},
                                                    {3, host_report({})}},
                                        .unreachable = {}});
    ASSERT_TRUE(cause);
    EXPECT_EQ(cause->cause.missing, std::vector{3}) << "rank 0 computes, but no late wait leads to it";
    EXPECT_EQ(cause->reporter, 1);
    EXPECT_EQ(cause->cause.details, ". The others wait for all-reduce over tp (operation 0): rank 2");
}

TEST(RootCause, IsNoRankThatOnlyAWaitInTimeLeadsTo) {
    const auto cause = find_root_cause({.num_ranks = 4,
                                        .by_rank = {{0, host_report({host_wait("dp", {0, 1}, 101)})},
                                                    {1, host_report({})},
                                                    {2, host_report({host_wait("dp", {2, 3}, 1)})},
                                                    {3, host_report({})}},
                                        .unreachable = {}});
    EXPECT_EQ(cause->cause.missing, std::vector{1});
}

TEST(RootCause, IsRank0IfItIsSilentButNotIfItWasNeverConnected) {
    const RankReport own = host_report({host_wait("dp", {0, 1}, 101)});
    const std::string wait = "all-reduce over dp (operation 0) of ranks 0, 1: no answer in 100 s; ";
    EXPECT_EQ(no_answer_of_rank_0_text(own, {0}).find(wait + "missing: rank 0. "), 0U);
    EXPECT_EQ(no_answer_of_rank_0_text(own, {}).find(wait + "the missing ranks are unknown"), 0U);
}

TEST(RootCause, WithoutRank0NamesTheOperationAndNotTheLaunchingCall) {
    QueueState call = waiting("world", {0, 1}, 3, 100.1);
    call.under_way->work = {"forward and backward", 0};
    const RankReport own = report({call, waiting_in_graph("dp", {0, 1}, 5, 100)});
    EXPECT_EQ(no_answer_of_rank_0_text(own, {0}).find(
                  "all-gather over dp (operation 4 of graph 2) of ranks 0, 1: no answer in 100 s; "),
              0U);
}

// 16,384 ranks: tp 8, dp_shard 128, pp 16. Every rank has 12 queues and waits in one of them.
constexpr int kNumRanks = 16384, kTp = 8, kDp = 128, kQueues = 12;

/// The ranks of one tp and one pp coordinate, which share a dp_shard group.
std::vector<int> dp_group(int rank) {
    const int stage = rank / (kTp * kDp), tp = rank % kTp;
    return progression(stage * kTp * kDp + tp, kTp, kDp);
}
std::vector<int> tp_group(int rank) { return progression(rank - rank % kTp, 1, kTp); }

/// The wire format of the reports: even stages wait in dp_shard, the others for all ranks; the `computing`
/// ranks wait for nothing.
std::map<int, std::string> simulated_reports(const std::vector<int>& computing,
                                             const std::vector<int>& silent) {
    const std::vector<int> everyone = progression(0, 1, kNumRanks);
    std::map<int, std::string> texts;
    for (int rank = 0; rank < kNumRanks; ++rank) {
        if (std::ranges::count(silent, rank) > 0) continue;
        const bool computes = std::ranges::count(computing, rank) > 0;
        const bool even = rank / (kTp * kDp) % 2 == 0;
        const int64_t num_begun = computes ? 6 : 7;
        std::vector<QueueState> queues;
        for (int i = 0; i < kQueues - 3; ++i) queues.push_back(idle("q" + std::to_string(i), {rank}, 4));
        queues.push_back(idle("tp", tp_group(rank), 5));
        queues.push_back(!computes && even ? waiting("dp_shard", dp_group(rank), num_begun, 101)
                                           : idle("dp_shard", dp_group(rank), num_begun));
        queues.push_back(!computes && !even ? waiting("world", everyone, num_begun, 90)
                                            : idle("world", everyone, num_begun - (even ? 1 : 0)));
        texts[rank] = report(queues).text();
    }
    return texts;
}

TEST(RootCause, TravelsAsText) {
    for (const std::vector<int>& missing : {std::vector<int>{}, {0}, {1, 2, 3, 9}}) {
        const RootCause sent{.cause = {.missing = missing, .difference = "rank 3 is ahead", .details = ""},
                             .reporter = 7};
        const RootCause found = RootCause::parse(sent.text());
        EXPECT_EQ(found.reporter, 7);
        EXPECT_EQ(found.cause.missing, missing);
        EXPECT_EQ(found.cause.difference, "rank 3 is ahead");
        EXPECT_EQ(found.cause.details, "");
    }
}

int64_t peak_memory_bytes() {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return int64_t{usage.ru_maxrss} * 1024;
}

/// Measured on one core: 0.5 s and 16 MB for all reports, parsed. The bounds leave room for slow
/// machines and sanitizers; an analysis that is quadratic in ranks would take minutes.
TEST(RootCause, IsFoundAmong16384Ranks) {
    constexpr double kMaxSeconds = 20;
    constexpr int64_t kMaxMemoryBytes = 400 << 20, kMaxReportBytes = 2000;
    const std::vector<int> computing = {0, 5000, 9001}, silent = {77, 16383};
    const std::map<int, std::string> texts = simulated_reports(computing, silent);
    for (const auto& [rank, text] : texts) ASSERT_LE(std::ssize(text), kMaxReportBytes) << text;

    const int64_t memory_before = peak_memory_bytes();
    const double start = seconds_now();
    Reports reports{.num_ranks = kNumRanks, .by_rank = {}, .unreachable = {}};
    for (const auto& [rank, text] : texts) reports.by_rank[rank] = RankReport::parse(text);
    const auto cause = find_root_cause(reports);
    const double seconds = seconds_now() - start;
    const int64_t memory_bytes = peak_memory_bytes() - memory_before;
    RecordProperty("milliseconds", static_cast<int>(seconds * 1e3));
    RecordProperty("megabytes", static_cast<int>(memory_bytes >> 20));
    std::printf("%d reports: %.2f s, %d MB\n", kNumRanks, seconds, static_cast<int>(memory_bytes >> 20));
    ASSERT_TRUE(cause);
    EXPECT_EQ(cause->cause.missing, (std::vector{0, 77, 5000, 9001, 16383}));
    EXPECT_LT(seconds, kMaxSeconds);
    EXPECT_LT(memory_bytes, kMaxMemoryBytes);
    EXPECT_LT(cause->message().size(), 2000U) << cause->message();
}

}  // namespace
}  // namespace argosy::watch

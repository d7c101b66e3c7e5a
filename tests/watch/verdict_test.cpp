// Who is missing, from reports that a test writes.
#include "watch/verdict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace argosy::watch {
namespace {

using QueueState = LaunchQueue::QueueState;

constexpr double kTimeout = 100;

QueueState idle(std::string name, std::vector<int> members, int64_t num_begun) {
    QueueState state;
    state.key = name + "/key";
    state.name = std::move(name);
    state.members = std::move(members);
    state.num_begun = num_begun;
    state.last = {"broadcast", 4};
    state.last_id = {0, num_begun - 1};
    state.seconds_since_last = 120;
    return state;
}

/// In the second launch of a graph, of whose operations it has come to so many.
QueueState in_graph(std::string name, std::vector<int> members, int64_t num_begun) {
    QueueState state = idle(std::move(name), std::move(members), 4);
    state.graph = {2, num_begun};
    if (num_begun > 0) state.last_id = {2, num_begun - 1};
    return state;
}

/// A line that a rank has come to `num_begun` launches of, and waits for the last of them.
QueueState waiting(std::string name, std::vector<int> members, int64_t num_begun, double seconds,
                   std::string kind = "all-reduce") {
    QueueState state = idle(std::move(name), std::move(members), num_begun);
    state.last = {kind, 8};
    state.seconds_since_last = seconds;
    state.under_way = {{0, num_begun - 1}, {std::move(kind), 8}, seconds};
    return state;
}

/// Likewise, of that launch.
QueueState waiting_in_graph(std::string name, std::vector<int> members, int64_t num_begun, double seconds) {
    QueueState state = in_graph(std::move(name), std::move(members), num_begun);
    state.under_way = {state.last_id, {"all-gather", 8}, seconds};
    return state;
}

WatchReport report(std::vector<QueueState> queues) {
    WatchReport made{std::move(queues), "", kTimeout};
    for (const QueueState& one : made.queues) {
        if (one.under_way) {
            made.seconds_to_limit = std::min(made.seconds_to_limit, kTimeout - one.under_way->waited_seconds);
        }
    }
    return made;
}

std::string text_of(std::map<int, WatchReport> reports, int num_ranks, std::vector<int> apart = {}) {
    return verdict({num_ranks, kTimeout, std::move(reports), std::move(apart)}).value_or("");
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(WatchReport, TravelsAsText) {
    WatchReport sent = report({waiting("dp_shard x cp", {0, 7}, 12, 101.5, "all-gather"), idle("tp", {0}, 3),
                               waiting_in_graph("cp", {0, 1}, 5, 3)});
    sent.error = "an error\nof two lines";
    const WatchReport got = WatchReport::of_text(sent.text());
    EXPECT_EQ(got.error, "an error of two lines");
    EXPECT_DOUBLE_EQ(got.seconds_to_limit, -1.5);
    ASSERT_EQ(got.queues.size(), 3U);
    EXPECT_EQ(got.queues[0].name, "dp_shard x cp");
    EXPECT_EQ(got.queues[0].key, sent.queues[0].key);
    EXPECT_EQ(got.queues[0].members, (std::vector{0, 7}));
    EXPECT_EQ(got.queues[0].num_begun, 12);
    ASSERT_TRUE(got.queues[0].under_way);
    EXPECT_EQ(got.queues[0].under_way->id, (LaunchQueue::LaunchId{0, 11}));
    EXPECT_EQ(got.queues[0].under_way->work, sent.queues[0].under_way->work);
    EXPECT_EQ(got.queues[1].num_begun, 3);
    EXPECT_EQ(got.queues[1].last, sent.queues[1].last);
    EXPECT_EQ(got.queues[1].seconds_since_last, 120);
    EXPECT_FALSE(got.queues[1].under_way);
    EXPECT_EQ(got.queues[2].graph, (LaunchQueue::LaunchId{2, 5}));
    EXPECT_EQ(got.queues[2].last_id, (LaunchQueue::LaunchId{2, 4}));
    EXPECT_EQ(got.queues[2].under_way->id, (LaunchQueue::LaunchId{2, 4}));
}

TEST(Verdict, IsNoneWhereNothingIsLate) {
    EXPECT_EQ(text_of({{0, report({waiting("tp", {0, 1}, 1, 99)})}, {1, report({idle("tp", {0, 1}, 0)})}}, 2),
              "");
}

TEST(Verdict, NamesWhoHasNotComeToTheLaunch) {
    const std::vector<int> members = {0, 1, 2};
    const std::string text = text_of({{0, report({waiting("tp", members, 5, 101)})},
                                      {1, report({waiting("tp", members, 5, 50)})},
                                      {2, report({idle("tp", members, 4)})}},
                                     3);
    EXPECT_EQ(
        text.find("all-reduce over tp (operation 4) of ranks 0, 1, 2: no answer in 100 s; missing: rank 2. "),
        0U)
        << text;
    EXPECT_TRUE(has(text, ". Rank 2 came to broadcast over tp (operation 3) 120 s ago, and to nothing since"))
        << text;
}

TEST(Verdict, NamesWhoseGpuHasNotComeToAnOperationOfAGraph) {
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
    EXPECT_TRUE(has(text, ". Rank 1 came to broadcast over dp (operation 3 of graph 2) 120 s ago")) << text;
}

TEST(Verdict, NamesWhoHasNotLaunchedTheGraph) {
    const std::vector<int> members = {0, 1};
    QueueState before = idle("dp", members, 4);
    before.graph = {2, 0};
    EXPECT_TRUE(
        has(text_of({{0, report({waiting_in_graph("dp", members, 1, 101)})}, {1, report({before})}}, 2),
            "missing: rank 1. "));
}

TEST(Verdict, TellsAnOperationRatherThanTheCallThatWaitsForIt) {
    QueueState call = waiting("world", {0, 1}, 1, 110);
    call.under_way->work = {"forward and backward", 0};
    const std::string text = text_of({{0, report({call, waiting_in_graph("dp", {0, 1}, 1, 101)})},
                                      {1, report({in_graph("dp", {0, 1}, 0)})}},
                                     2);
    EXPECT_EQ(text.find("all-gather over dp"), 0U) << text;
}

TEST(Verdict, NamesNobodyWhoHasBeenThere) {
    const std::string text =
        text_of({{0, report({waiting("tp", {0, 1}, 5, 101)})}, {1, report({idle("tp", {0, 1}, 5)})}}, 2);
    EXPECT_TRUE(has(text, "all ranks wait by now")) << text;
    EXPECT_FALSE(has(text, "missing")) << text;
}

TEST(Verdict, NamesWhoDoesNotAnswerUnlessItCannot) {
    const WatchReport own = report({waiting("tp", {0, 1}, 5, 101)});
    EXPECT_TRUE(has(text_of({{0, own}}, 3), "; missing: rank 1, 2. "));
    EXPECT_TRUE(has(text_of({{0, own}}, 3, {2}), "; missing: rank 1. "));
}

TEST(Verdict, NamesWhomOthersWaitForThroughOthers) {
    // Rank 0 waits for 1, which waits for 2, which waits for nobody.
    const std::string text =
        text_of({{0, report({waiting("dp", {0, 1}, 3, 101)})},
                 {1, report({idle("dp", {0, 1}, 2), waiting("tp", {1, 2}, 9, 90, "all-gather")})},
                 {2, report({idle("tp", {1, 2}, 8)})}},
                3);
    EXPECT_TRUE(has(text, "; missing: rank 2. ")) << text;
    EXPECT_TRUE(has(text, "The others wait for all-gather over tp (operation 8): rank 1")) << text;
}

TEST(Verdict, NamesOneWhoNeverMadeTheGroup) {
    EXPECT_TRUE(has(text_of({{0, report({waiting("tp", {0, 1}, 1, 101)})}, {1, report({})}}, 2),
                    "; missing: rank 1. "));
}

TEST(Verdict, SaysWhereOneNumberIsTwoThings) {
    const std::string text = text_of({{0, report({waiting("tp", {0, 1}, 1, 101)})},
                                      {1, report({waiting("tp", {0, 1}, 1, 101, "all-gather")})}},
                                     2);
    EXPECT_TRUE(
        has(text,
            "Operation 0 over tp is all-reduce of 8 elements on rank 0, and all-gather of 8 elements on "
            "rank 1"))
        << text;
}

TEST(Verdict, TellsAnErrorOfNcclEvenBeforeAnythingIsLate) {
    WatchReport failed = report({waiting("tp", {0, 1}, 1, 1)});
    failed.error = "an operation of NCCL failed";
    EXPECT_EQ(text_of({{0, report({})}, {1, failed}}, 2),
              "seen on rank 1: an operation of NCCL failed; missing: rank 0");
}

}  // namespace
}  // namespace argosy::watch

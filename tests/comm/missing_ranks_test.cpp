// Waiting ranks name the missing ranks and no others, whatever operations they wait for. The missing ranks
// wait on testing::world(), which another watchdog watches.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/strict_json.h"
#include "comm/backends.h"
#include "support/shared_folder.h"
#include "support/world.h"

namespace argosy::comm {
namespace {

constexpr double kTimeout = 1;

class MissingRanks : public ::testing::TestWithParam<Backend> {
  protected:
    void SetUp() override {
        if (size_ != 4) GTEST_SKIP() << "waits for seconds: once is enough, on four ranks";
    }
    static Op token_op(OpKind kind, int peer = -1) {
        const at::Tensor token = at::zeros({1}, at::kLong);
        return {.kind = kind, .out = token, .in = token, .peer = peer};
    }

    /// Each of the four ranks sends one element to each.
    static Op all_to_all() {
        const std::vector<int64_t> ones(4, 1);
        return {.kind = OpKind::AllToAll,
                .out = at::zeros({4}, at::kLong),
                .in = at::zeros({4}, at::kLong),
                .parts = {ones, ones, 16}};
    }

    std::unique_ptr<Communicator> group_of(std::vector<int> ranks, std::string name) const {
        return world_->subgroup(ranks, std::move(name));
    }
    bool is(std::initializer_list<int> ranks) const { return std::ranges::count(ranks, rank_) > 0; }

    /// The text of the error of a wait in `calls`.
    template <class Calls>
    std::string message_in(const Calls& calls) {
        try {
            calls();
        } catch (const TimeoutError& error) {
            EXPECT_EQ(error.code(), ExitCode::Watchdog);
            reports_ = error.reach() == Reach::OneRank;
            return error.what();
        }
        ADD_FAILURE() << "no TimeoutError";
        return "";
    }
    std::string message_of(Communicator& group, const Op& op) {
        return message_in([&] { group.run(op); });
    }
    void expect_in(const std::string& message, const std::string& part) const {
        EXPECT_NE(message.find(part), std::string::npos) << part << " on rank " << rank_ << ": " << message;
    }
    /// COLLECTIVE: the number of ranks that print their error.
    int num_reporters() const {
        const at::Tensor count = at::zeros({1}, at::kLong);
        count.mutable_data_ptr<int64_t>()[0] = reports_;
        testing::world().run({.kind = OpKind::AllReduce, .out = count, .in = count});
        return static_cast<int>(count.item<int64_t>());
    }

    const std::unique_ptr<Communicator> world_ =
        all_ranks(GetParam(), "world", {.timeout_seconds = kTimeout});
    const int rank_ = world_->rank(), size_ = world_->size();
    bool reports_ = false;
};

TEST_P(MissingRanks, OneOfAll) {
    for (const int missing : {0, 2}) {
        const auto group = all_ranks(GetParam(), "dp_shard", {.timeout_seconds = kTimeout});
        reports_ = false;
        if (rank_ != missing) {
            const std::string message = message_of(*group, token_op(OpKind::AllReduce));
            expect_in(message,
                      "all-reduce over dp_shard (operation 0) of ranks 0, 1, 2, 3: no answer in 1 s");
            expect_in(message, "; missing: rank " + std::to_string(missing) + ". ");
        }
        EXPECT_EQ(num_reporters(), 1);
    }
}

TEST_P(MissingRanks, OneOfAnAllToAll) {
    if (rank_ != 2) {
        const std::string message = message_of(*world_, all_to_all());
        expect_in(message, "all-to-all over world (operation 0) of ranks 0, 1, 2, 3: no answer in 1 s");
        expect_in(message, "; missing: rank 2. ");
    }
    EXPECT_EQ(num_reporters(), 1);
}

TEST_P(MissingRanks, Two) {
    if (is({1, 2})) expect_in(message_of(*world_, token_op(OpKind::AllReduce)), "; missing: rank 0, 3. ");
    EXPECT_EQ(num_reporters(), 1);
}

// Rank 1 waits for rank 2, rank 0 for rank 1, and rank 3 for a message of rank 0: all for rank 2 in the end.
TEST_P(MissingRanks, TheEndOfAChainOfWaitingRanks) {
    const auto pairs = group_of(is({0, 1}) ? std::vector{0, 1} : std::vector{2, 3}, "tp");
    const auto middle = is({1, 2}) ? group_of({1, 2}, "dp") : nullptr;
    if (rank_ != 2) {
        const std::string message = rank_ == 0   ? message_of(*pairs, token_op(OpKind::AllReduce))
                                    : rank_ == 1 ? message_of(*middle, token_op(OpKind::AllReduce))
                                                 : message_of(*world_, token_op(OpKind::Receive, 0));
        expect_in(message, "; missing: rank 2. ");
        if (reports_) {
            if (rank_ != 1) expect_in(message, "all-reduce over dp (operation 0): rank 1");
            if (rank_ != 3) expect_in(message, "receive over world (operation 0): rank 3");
        }
    }
    EXPECT_EQ(num_reporters(), 1);
}

// Rank 0 begins to wait late, so its own timeout is far when the others time out.
TEST_P(MissingRanks, NotARankThatHasJustBegunToWait) {
    const auto group = all_ranks(GetParam(), "pp", {.timeout_seconds = 3});
    if (rank_ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2600));
    if (rank_ != 1) expect_in(message_of(*group, token_op(OpKind::AllReduce)), "; missing: rank 1. ");
    EXPECT_EQ(num_reporters(), 1);
}

TEST_P(MissingRanks, NoneIfAllWaitForDifferentOperations) {
    const auto second = world_->subgroup(std::vector{0, 1, 2, 3}, "second");
    const std::string message = message_of(rank_ == 3 ? *second : *world_, token_op(OpKind::AllReduce));
    expect_in(message, "; all ranks are waiting: ");
    EXPECT_EQ(message.find("missing"), std::string::npos) << message;
    if (reports_ && rank_ != 3)
        expect_in(message, "The others wait for all-reduce over second (operation 0): rank 3");
    EXPECT_GE(num_reporters(), 1);
}

// MPI may end the operations that differ, with wrong results. Rank 2 waits at the latest in the next one. In
// shared memory no rank ends such an operation.
TEST_P(MissingRanks, NoneIfARankSubmitsAnotherOperation) {
    const testing::SharedFolder folder(testing::world());
    const auto group =
        all_ranks(GetParam(), "dp_shard", {.timeout_seconds = kTimeout, .flight_folder = folder / "flight"});
    const auto end = group->subgroup(std::vector{0, 1, 2, 3}, "end");
    const at::Tensor one = at::zeros({1}, at::kLong), all = at::zeros({size_}, at::kLong);
    const std::string message = message_in([&] {
        if (rank_ == 2) group->run({OpKind::AllGather, all, one});
        group->run(token_op(OpKind::AllReduce));
        end->run(token_op(OpKind::AllReduce));
    });
    expect_in(message,
              "no answer in 1 s; ranks have submitted different operations: rank 2 submitted all-gather of 4 "
              "int64 as collective ");
    expect_in(message, " over dp_shard, where rank 0, 1, 3 submitted all-reduce of 1 int64. The ");
    if (GetParam() == Backend::SharedMemory) expect_in(message, " over dp_shard (operation 0) of ranks ");
    EXPECT_EQ(num_reporters(), 1);
    // The watchdog's thread writes the file; this thread may learn of the error before.
    const auto path = folder / ("flight/rank-" + std::to_string(rank_) + ".json");
    const double start = seconds_now();
    while (!std::filesystem::exists(path) && seconds_now() - start < testing::kTimeoutSeconds)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const auto file = parse_json(read_file(path), path.string());
    EXPECT_EQ(file["rank"], rank_);
    EXPECT_EQ(file["operations"].back()["state"], "under way");
}

TEST_P(MissingRanks, NoneIfARankSubmitsNoAllToAll) {
    const std::string message = message_of(*world_, rank_ == 2 ? token_op(OpKind::AllReduce) : all_to_all());
    expect_in(message, "different operations: rank 2 submitted all-reduce of 1 int64 as collective ");
    expect_in(message, " over world, where rank 0, 1, 3 submitted all-to-all of 16 int64 (");
    EXPECT_EQ(num_reporters(), 1);
}

INSTANTIATE_TEST_SUITE_P(All, MissingRanks, ::testing::Values(Backend::Mpi, Backend::SharedMemory),
                         name_of_backend);

}  // namespace
}  // namespace argosy::comm

// Which operations proceed while a rank computes, and which other operations a waiting rank advances.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "comm/backends.h"
#include "comm/numbers.h"
#include "support/shared_folder.h"
#include "support/world.h"

namespace argosy::comm {
namespace {

using ::argosy::testing::kTimeoutSeconds;

std::vector<int> numbers_up_to(int size) {
    std::vector<int> ranks(size);
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
}

/// Computes until the file exists. Returns whether that took less than kTimeoutSeconds.
bool compute_until_exists(const std::filesystem::path& file) {
    const double start = seconds_now();
    while (!std::filesystem::exists(file)) {
        if (seconds_now() - start > kTimeoutSeconds) return false;
    }
    return true;
}

struct Started {
    Op op;
    Communicator* group;
    Pending pending;
};

Op collective(OpKind kind, int64_t count, const Communicator& group, at::ScalarType type) {
    const int64_t all = count * group.size();
    if (kind == OpKind::AllGather) return {kind, at::zeros({all}, type), numbers(group.rank(), count, type)};
    if (kind == OpKind::ReduceScatter)
        return {kind, at::zeros({count}, type), numbers(group.rank(), all, type)};
    return {kind, at::zeros({count}, type), numbers(group.rank(), count, type)};
}

bool as_expected(const Op& op, const Communicator& group) {
    const at::Tensor out = op.out.to(at::kDouble);
    const double* const results = out.const_data_ptr<double>();
    const int64_t count = op.kind == OpKind::AllGather ? op.in.numel() : op.out.numel();
    const int64_t first = op.kind == OpKind::ReduceScatter ? group.rank() * count : 0;
    for (int64_t i = 0; i < out.numel(); ++i) {
        double expected = 0;
        for (int rank = 0; rank < group.size(); ++rank) expected += number(rank, first + i);
        if (op.kind == OpKind::AllGather) expected = number(static_cast<int>(i / count), i % count);
        if (results[i] != expected) return false;
    }
    return true;
}

class ComputingRank : public ::testing::TestWithParam<OpKind> {};

// Over MPI, the others would wait until rank 0 waits itself. A file of each other rank says that its wait has
// ended.
TEST_P(ComputingRank, KeepsNobodyWaiting) {
    const testing::SharedFolder folder(testing::world());
    const auto group = all_ranks(Backend::SharedMemory, "tp", {.timeout_seconds = kTimeoutSeconds});
    if (group->size() == 1) GTEST_SKIP() << "needs two ranks";
    const int64_t count = (2 << 20) / 4 / group->size();
    const Op op = collective(GetParam(), count, *group, at::kFloat);
    group->run(collective(OpKind::AllReduce, 1, *group, at::kFloat));
    Pending pending = group->submit(op);
    if (group->rank() == 0) {
        for (int rank = 1; rank < group->size(); ++rank) {
            EXPECT_TRUE(compute_until_exists(folder / std::to_string(rank))) << "rank " << rank << " waits";
        }
    } else {
        pending.wait();
        std::ofstream(folder / std::to_string(group->rank()));
    }
    pending.wait();
    EXPECT_TRUE(as_expected(op, *group));
}

INSTANTIATE_TEST_SUITE_P(All, ComputingRank, ::testing::Values(OpKind::AllGather, OpKind::ReduceScatter));

class Attention : public ::testing::TestWithParam<Backend> {
  protected:
    void SetUp() override {
        if (world_->size() == 1) GTEST_SKIP() << "needs two ranks";
    }

    const std::unique_ptr<Communicator> world_ =
        all_ranks(GetParam(), "world", {.timeout_seconds = 10, .synchronous_sends = true});
};

// Rank 0 waits for the second group's operation while the others wait for its part of the first group's
// operation, which is too large to be published at once. They reach the second operation only after that.
TEST_P(Attention, AWaitServesOtherGroups) {
    const auto first = world_->subgroup(numbers_up_to(world_->size()), "first");
    const auto second = world_->subgroup(numbers_up_to(world_->size()), "second");
    const Op large = collective(OpKind::AllGather, 100000, *first, at::kFloat);
    const Op small = collective(OpKind::AllReduce, 10, *second, at::kFloat);
    Pending pending = first->submit(large);
    if (world_->rank() != 0) pending.wait();
    second->run(small);
    pending.wait();
    EXPECT_TRUE(as_expected(large, *first));
    EXPECT_TRUE(as_expected(small, *second));
}

TEST_P(Attention, AWaitForACollectiveServesMessages) {
    const int64_t count = 1 << 20;  // MPI sends it in parts, in calls of the sender
    const at::Tensor message = numbers(5, count, at::kFloat), received = at::zeros({count}, at::kFloat);
    const Op op = collective(OpKind::AllReduce, 10, *world_, at::kFloat);
    Pending sending;
    if (world_->rank() == 0) sending = world_->submit(Op{.kind = OpKind::Send, .in = message, .peer = 1});
    if (world_->rank() == 1) {
        world_->run(Op{.kind = OpKind::Receive, .out = received, .peer = 0});
        EXPECT_TRUE(at::equal(received, message));
    }
    world_->run(op);
    sending.wait();
    EXPECT_TRUE(as_expected(op, *world_));
}

// Rank 1 sends only once it has rank 0's part of a collective that is too large to be published at once.
TEST_P(Attention, AWaitForAMessageServesCollectives) {
    const at::Tensor message = at::zeros({1}, at::kFloat);
    const Op large = collective(OpKind::AllGather, 100000, *world_, at::kFloat);
    Pending pending = world_->submit(large);
    if (world_->rank() != 0) pending.wait();
    if (world_->rank() == 0) world_->run(Op{.kind = OpKind::Receive, .out = message, .peer = 1});
    if (world_->rank() == 1) world_->run(Op{.kind = OpKind::Send, .in = message, .peer = 0});
    pending.wait();
    EXPECT_TRUE(as_expected(large, *world_));
}

// The order of submissions is the same on all ranks of a group, that of waits each rank's own.
TEST_P(Attention, ManyOperationsOnGroupsThatOverlap) {
    const int rank = world_->rank(), size = world_->size();
    const std::vector<int> all = numbers_up_to(size);
    const int half = size / 2;
    const auto own_half = rank < half ? std::span(all).first(half) : std::span(all).subspan(half);
    const auto halves = world_->subgroup(own_half, "halves");
    Communicator* const groups[] = {world_.get(), halves.get()};

    std::mt19937 shared_choice(7), own_choice(rank);
    std::vector<Started> under_way;
    const auto wait_for_some = [&](size_t keep) {
        while (under_way.size() > keep) {
            const size_t chosen = own_choice() % under_way.size();
            Started& one = under_way[chosen];
            one.pending.wait();
            EXPECT_TRUE(as_expected(one.op, *one.group)) << kind_name(one.op.kind);
            under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(chosen));
        }
    };
    constexpr OpKind kKinds[] = {OpKind::AllGather, OpKind::ReduceScatter, OpKind::AllReduce};
    constexpr int64_t kMixedCounts[] = {0, 1, 17, 1000, 9973};
    for (int i = 0; i < 150; ++i) {
        Communicator* const group = groups[shared_choice() % 2];
        const Op op =
            collective(kKinds[shared_choice() % 3], kMixedCounts[shared_choice() % 5], *group, at::kDouble);
        under_way.push_back({op, group, group->submit(op)});
        wait_for_some(own_choice() % 12);
    }
    wait_for_some(0);
}

INSTANTIATE_TEST_SUITE_P(All, Attention, host_backends(), name_of_backend);

// If one rank cannot allocate its shared memory, all ranks use MPI.
TEST(Fallback, IsMpiIfARankHasNoSharedMemory) {
    const bool last = testing::world().rank() == testing::world().size() - 1;
    const int64_t too_much = int64_t{1} << 60;
    const auto group = make_communicator(mpi::Comm::world(), "tp",
                                         {.shared_memory_bytes = last ? too_much : kSmallRingBytes});
    const Op op = collective(OpKind::AllReduce, 1000, *group, at::kFloat);
    group->run(op);
    EXPECT_TRUE(as_expected(op, *group));
}

}  // namespace
}  // namespace argosy::comm

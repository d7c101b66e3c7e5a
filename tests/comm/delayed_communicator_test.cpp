#include "support/delayed_communicator.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "base/clock.h"
#include "support/world.h"

namespace argosy::testing {
namespace {

using comm::Op;
using comm::OpKind;

constexpr double kLatency = 0.02, kMessage = 0.05;  // seconds; the latter with the latency
constexpr int64_t kElements = 3000;
constexpr double kTolerance = 0.015;

class DelayedCommunicatorTest : public ::testing::Test {
  protected:
    DelayedCommunicatorTest() {
        std::vector<int> all(world().size());
        std::iota(all.begin(), all.end(), 0);
        group_ = DelayedCommunicator(world(), "slow", network_).subgroup(all, "slow");
        group_->open_channels();
    }

    /// Starts to send `out` to the next rank and to receive `in` from the rank before.
    comm::Pending exchange(const at::Tensor& out, const at::Tensor& in) {
        const int size = group_->size(), rank = group_->rank();
        const Op ops[] = {{.kind = OpKind::Send, .in = out, .peer = (rank + 1) % size},
                          {.kind = OpKind::Receive, .out = in, .peer = (rank + size - 1) % size}};
        return group_->submit(ops);
    }
    at::Tensor numbers_of(int rank) const { return at::arange(kElements, at::kDouble).add_(10000 * rank); }
    int previous() const { return (group_->rank() + group_->size() - 1) % group_->size(); }

    /// The value of each rank.
    static at::Tensor gather(double value) {
        const at::Tensor all = at::empty({world().size()}, at::kDouble);
        world().run({.kind = OpKind::AllGather, .out = all, .in = at::full({1}, value, at::kDouble)});
        return all;
    }

    /// Expects `work` of all ranks to take `expected` seconds: at least that from the first rank's start in
    /// every try, and about that from the last one's start in one of many tries, because other programs may
    /// take the processor.
    template <class Work>
    void expect_seconds(double expected, Work work) {
        const double most = expected + kTolerance;
        double shortest = HUGE_VAL, closest = HUGE_VAL;
        for (int attempt = 0; attempt < 50 && gather(closest).max().item<double>() > most; ++attempt) {
            const double begin = seconds_now();
            work();
            const double end = seconds_now();
            const at::Tensor begins = gather(begin);
            shortest = std::min(shortest, end - begins.min().item<double>());
            closest = std::min(closest, end - begins.max().item<double>());
        }
        EXPECT_GE(shortest, expected);
        EXPECT_LE(closest, most);
    }

    Network network_{kLatency, 8 * kElements / (kMessage - kLatency)};
    std::unique_ptr<comm::Communicator> group_;
};

TEST_F(DelayedCommunicatorTest, DeliversAMessageAfterItsTime) {
    const at::Tensor in = at::zeros({kElements}, at::kDouble);
    comm::Pending pending;
    expect_seconds(0, [&] { pending = exchange(numbers_of(group_->rank()), in); });
    expect_seconds(kMessage, [&] { exchange(numbers_of(group_->rank()), in).wait(); });
    EXPECT_TRUE(at::equal(in, numbers_of(previous())));
}

TEST_F(DelayedCommunicatorTest, MessagesKeepTheirOrderAndShareTheLink) {
    const at::Tensor first = at::zeros({kElements}, at::kDouble), second = at::zeros_like(first);
    expect_seconds(2 * kMessage - kLatency, [&] {
        comm::Pending one = exchange(numbers_of(group_->rank()), first);
        comm::Pending two = exchange(numbers_of(group_->rank() + 50), second);
        two.wait();
        one.wait();
    });
    EXPECT_TRUE(at::equal(first, numbers_of(previous())));
    EXPECT_TRUE(at::equal(second, numbers_of(previous() + 50)));
}

TEST_F(DelayedCommunicatorTest, ACollectiveTakesTheTimeOfARing) {
    const int size = group_->size();
    const at::Tensor all = at::zeros({size * kElements}, at::kDouble);
    expect_seconds((size - 1) * kMessage, [&] {
        group_->run({.kind = OpKind::AllGather, .out = all, .in = numbers_of(group_->rank())});
    });
    for (int rank = 0; rank < size; ++rank) {
        EXPECT_TRUE(at::equal(all.narrow(0, rank * kElements, kElements), numbers_of(rank)));
    }
    const at::Tensor one = at::full({size * kElements}, 1, at::kDouble), sum = at::zeros_like(one);
    expect_seconds(2 * (size - 1) * kMessage,
                   [&] { group_->run({.kind = OpKind::AllReduce, .out = sum, .in = one}); });
    EXPECT_TRUE(at::equal(sum, at::full({size * kElements}, size, at::kDouble)));
}

TEST_F(DelayedCommunicatorTest, DelaysOnlyMessagesIfAsked) {
    network_.delays_collectives = false;
    const at::Tensor one = at::full({kElements}, 1, at::kDouble), sum = at::zeros_like(one);
    expect_seconds(0, [&] { group_->run({.kind = OpKind::AllReduce, .out = sum, .in = one}); });
    EXPECT_TRUE(at::equal(sum, at::full({kElements}, group_->size(), at::kDouble)));
    expect_seconds(kMessage, [&] { exchange(numbers_of(group_->rank()), at::zeros_like(one)).wait(); });
}

TEST_F(DelayedCommunicatorTest, ABlockingNetworkWaitsInSubmit) {
    network_.blocking = true;
    const at::Tensor in = at::zeros({kElements}, at::kDouble);
    expect_seconds(kMessage, [&] { EXPECT_FALSE(exchange(numbers_of(group_->rank()), in).active()); });
}

TEST_F(DelayedCommunicatorTest, OtherGroupsAreNotDelayed) {
    DelayedCommunicator other(world(), "slow", network_);
    const at::Tensor sum = at::full({kElements}, 1, at::kDouble);
    expect_seconds(0, [&] { other.run({.kind = OpKind::AllReduce, .out = sum, .in = sum}); });
}

}  // namespace
}  // namespace argosy::testing

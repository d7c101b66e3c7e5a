// Sends and receives, with buffering and without.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <memory>
#include <tuple>

#include "base/clock.h"
#include "comm/backends.h"
#include "comm/numbers.h"
#include "support/world.h"

namespace argosy::comm {
namespace {

using ::argosy::testing::kTimeoutSeconds;
using ::argosy::testing::world;

enum class Sends { Buffered, Synchronous };

class PointToPoint : public ::testing::TestWithParam<std::tuple<Backend, Sends>> {
  protected:
    void SetUp() override {
        if (group_.size() == 1 && std::get<Backend>(GetParam()) == Backend::Nccl) {
            GTEST_SKIP() << "no messages to oneself";
        }
        group_.open_channels();
    }
    static Sends sends() { return std::get<Sends>(GetParam()); }
    int next() const { return (group_.rank() + 1) % group_.size(); }
    int previous() const { return (group_.rank() + group_.size() - 1) % group_.size(); }

    const std::unique_ptr<Communicator> owned_ =
        all_ranks(std::get<Backend>(GetParam()), "pp",
                  {.timeout_seconds = kTimeoutSeconds, .synchronous_sends = sends() == Sends::Synchronous});
    Communicator& group_ = *owned_;
};

TEST_P(PointToPoint, MessagesArriveInTheOrderOfTheirSubmission) {
    constexpr int kMessages = 5;
    std::vector<Pending> pending;
    std::vector<at::Tensor> received;
    for (int i = 0; i < kMessages; ++i) {
        const at::Tensor in = numbers(group_.rank() + i, 50, at::kFloat);
        pending.push_back(group_.submit(Op{.kind = OpKind::Send, .in = in, .peer = next()}));
    }
    for (int i = 0; i < kMessages; ++i) {
        received.push_back(at::zeros({50}, at::kFloat));
        pending.push_back(
            group_.submit(Op{.kind = OpKind::Receive, .out = received.back(), .peer = previous()}));
    }
    for (Pending& each : pending) each.wait();
    for (int i = 0; i < kMessages; ++i) {
        EXPECT_TRUE(at::equal(received[i], numbers(previous() + i, 50, at::kFloat))) << i;
    }
}

TEST_P(PointToPoint, AGroupedExchangeOfLargeMessagesDoesNotDeadlock) {
    constexpr int64_t kCount = 1 << 20;  // far above what MPI buffers
    const at::Tensor in = numbers(group_.rank(), kCount, at::kBFloat16);
    const at::Tensor out = at::zeros({kCount}, at::kBFloat16);
    const std::vector<Op> ops = {{.kind = OpKind::Send, .in = in, .peer = next()},
                                 {.kind = OpKind::Receive, .out = out, .peer = previous()}};
    group_.run(ops);
    EXPECT_TRUE(at::equal(out, numbers(previous(), kCount, at::kBFloat16)));
}

TEST_P(PointToPoint, OnlyASynchronousSendWaitsForItsReceiver) {
    if (group_.size() == 1) GTEST_SKIP() << "needs two ranks";
    if (std::get<Backend>(GetParam()) == Backend::Nccl) GTEST_SKIP() << "the host never waits";
    constexpr double kLate = 0.5;
    const at::Tensor small = at::zeros({1}, at::kFloat);
    if (group_.rank() == 0) {
        const double start = seconds_now();
        group_.run(Op{.kind = OpKind::Send, .in = small, .peer = 1});
        const bool waited = seconds_now() - start > kLate / 2;
        EXPECT_EQ(waited, sends() == Sends::Synchronous);
    } else if (group_.rank() == 1) {
        const double start = seconds_now();
        while (seconds_now() - start < kLate) {
        }
        group_.run(Op{.kind = OpKind::Receive, .out = small, .peer = 0});
    }
}

TEST_P(PointToPoint, GoesTogetherWithACollective) {
    const at::Tensor in = numbers(group_.rank(), 70, at::kFloat), out = at::zeros({70}, at::kFloat);
    const at::Tensor gathered = at::zeros({70 * group_.size()}, at::kFloat);
    const std::vector<Op> ops = {{.kind = OpKind::Send, .in = in, .peer = next()},
                                 {OpKind::AllGather, gathered, in},
                                 {.kind = OpKind::Receive, .out = out, .peer = previous()}};
    group_.run(ops);
    EXPECT_TRUE(at::equal(out, numbers(previous(), 70, at::kFloat)));
    EXPECT_TRUE(at::equal(gathered.narrow(0, 70 * next(), 70), numbers(next(), 70, at::kFloat)));
}

INSTANTIATE_TEST_SUITE_P(All, PointToPoint,
                         ::testing::Combine(all_backends(),
                                            ::testing::Values(Sends::Buffered, Sends::Synchronous)),
                         [](const auto& test) {
                             const bool buffered = std::get<Sends>(test.param) == Sends::Buffered;
                             return backend_name(std::get<Backend>(test.param)) +
                                    (buffered ? "Buffered" : "Synchronous");
                         });

}  // namespace
}  // namespace argosy::comm

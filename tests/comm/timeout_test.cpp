// Each wait has a timeout. The error names the group and the operation for which the ranks waited.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "comm/backends.h"
#include "support/world.h"

namespace argosy::comm {
namespace {

using ::argosy::testing::world;

constexpr double kShortTimeout = 0.4, kSoon = 2;

/// Waits for `op` on a group in which rank 0 takes part only after this wait has ended. Returns the error's
/// message.
std::string message_of_timeout(Communicator& group, const Op& op) {
    const double start = seconds_now();
    try {
        group.run(op);
    } catch (const TimeoutError& error) {
        const double waited = seconds_now() - start;
        EXPECT_GE(waited, kShortTimeout);
        EXPECT_LT(waited, kSoon);
        EXPECT_EQ(error.code(), ExitCode::Watchdog);
        return error.what();
    }
    ADD_FAILURE() << "no TimeoutError";
    return "";
}

void expect_all_in(const std::string& message, std::initializer_list<const char*> parts) {
    for (const char* part : parts)
        EXPECT_NE(message.find(part), std::string::npos) << part << ": " << message;
}

class Timeout : public ::testing::TestWithParam<Backend> {
  protected:
    void SetUp() override {
        if (world().size() == 1) GTEST_SKIP() << "needs a rank that waits and one that is late";
    }
    /// So that no test gets a late message of another.
    void TearDown() override { synchronize(); }
    static void synchronize() {
        const at::Tensor token = at::zeros({1}, at::kLong);
        world().run({OpKind::AllReduce, token, token});
    }
};

TEST_P(Timeout, NamesAxisOperationAndLimitOfACollective) {
    const auto owned = all_ranks(GetParam(), "dp_shard x cp", {.timeout_seconds = kShortTimeout});
    Communicator& group = *owned;
    const at::Tensor both = at::zeros({1000}, at::kFloat);
    const Op op{OpKind::AllReduce, both, both};
    if (world().rank() != 0) {
        const std::string message = message_of_timeout(group, op);
        expect_all_in(message, {"all-reduce", "dp_shard x cp", "0.4 s", "operation 0", "missing: rank 0. "});
    }
    synchronize();
    if (world().rank() == 0) group.submit(op).wait();  // the others' inputs are still in shared memory
}

TEST_P(Timeout, NamesAReceiveWhoseSenderIsLate) {
    const auto owned = all_ranks(GetParam(), "pp", {.timeout_seconds = kShortTimeout});
    Communicator& group = *owned;
    const at::Tensor message = at::zeros({3}, at::kFloat);
    if (world().rank() == 1) {
        const std::string text =
            message_of_timeout(group, {.kind = OpKind::Receive, .out = message, .peer = 0});
        expect_all_in(text, {"receive", "pp", "0.4 s"});
    }
    synchronize();
    if (world().rank() == 0) group.run(Op{.kind = OpKind::Send, .in = message, .peer = 1});
}

TEST_P(Timeout, WaitingTimeIsExposed) {
    const auto owned = all_ranks(GetParam(), "tp", {.timeout_seconds = 20});
    Communicator& group = *owned;
    const at::Tensor both = at::zeros({1}, at::kFloat);
    if (world().rank() == 0) std::this_thread::sleep_for(std::chrono::duration<double>(kShortTimeout));
    group.run({OpKind::AllReduce, both, both});
    EXPECT_GE(group.exposed_seconds(), world().rank() == 0 ? 0 : kShortTimeout / 2);
    EXPECT_LT(group.exposed_seconds(), 10);
}

INSTANTIATE_TEST_SUITE_P(All, Timeout, host_backends(), name_of_backend);

}  // namespace
}  // namespace argosy::comm

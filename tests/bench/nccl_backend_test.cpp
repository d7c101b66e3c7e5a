// What a backend over NCCL, and the choice of it, meet when something is amiss; on stand-ins for GPUs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "base/clock.h"
#include "bench/bench_ranks.h"
#include "expect_error.h"
#include "support/fake_gpus.h"

namespace argosy::bench {
namespace {

using ::argosy::testing::fake_gpus;

constexpr size_t kBytes = 64;
constexpr double kTimeoutSeconds = 1;

class NcclBackendTest : public ::testing::Test {
  protected:
    void TearDown() override {
        fake_gpus() = usual_;
        EXPECT_TRUE(finished_within(ranks_.world.barrier(), 30));
    }

    std::unique_ptr<Backend> backend(double timeout_seconds = kTimeoutSeconds) const {
        return make_nccl_backend(ranks_.world.duplicate(), /*device=*/0, timeout_seconds, /*log=*/nullptr);
    }

    static void start_all_reduce(Backend& backend, const Backend::Memory& memory) {
        backend.all_reduce({memory.get(), memory.get(), kBytes, ElementType::Int8, Reduction::Sum, 0});
    }

    BackendChoice choose(const char* wanted = "") const {
        return choose_backend(ranks_.world, ranks_.control, wanted);
    }

    bool is_last() const { return ranks_.rank == ranks_.size - 1; }

    Ranks ranks_;
    const testing::FakeGpus usual_ = fake_gpus();
};

TEST_F(NcclBackendTest, IsTheDefaultWhereEveryRankSeesAGpu) {
    EXPECT_EQ(ranks_.choice.backend, "nccl");
    EXPECT_NE(ranks_.choice.library.find("NCCL 2."), std::string::npos);
    ASSERT_EQ(std::ssize(ranks_.choice.devices), ranks_.size);
    for (int rank = 0; rank < ranks_.size; ++rank) EXPECT_EQ(ranks_.choice.devices[rank].number, rank);
    EXPECT_EQ(choose("mpi").backend, "mpi");
    EXPECT_ERROR(choose("gloo"), UserError, "--backend is 'gloo'");
}

TEST_F(NcclBackendTest, ARankWithoutAGpuIsNamed) {
    if (is_last()) fake_gpus().num_devices = 0;
    EXPECT_EQ(choose().backend, "mpi");
    const std::string who = "rank " + std::to_string(ranks_.size - 1) + " (process ";
    EXPECT_ERROR(choose("nccl"), UserError, who, "sees no GPU", "CUDA_VISIBLE_DEVICES");
}

TEST_F(NcclBackendTest, TheOnlyGpuOfARankIsItsOwn) {
    fake_gpus().num_devices = 1;
    fake_gpus().first_device = ranks_.rank;
    const BackendChoice choice = choose("nccl");
    std::set<std::string> gpus;
    for (const cuda::Device& device : choice.devices) {
        EXPECT_EQ(device.number, 0);
        gpus.insert(device.pci_bus_id);
    }
    EXPECT_EQ(std::ssize(gpus), ranks_.size);
}

TEST_F(NcclBackendTest, RanksMayNotShareAGpuUnlessTheyPassForNodes) {
    if (ranks_.size == 1) GTEST_SKIP() << "one rank alone shares nothing";
    fake_gpus().num_devices = 1;
    EXPECT_ERROR(choose("nccl"), UserError, "ranks 0 and 1", "same GPU, 0000:3b:00.0", "--backend mpi");
    setenv("NCCL_HOSTID", std::to_string(ranks_.rank).c_str(), 1);
    EXPECT_EQ(choose("nccl").backend, "nccl");
    unsetenv("NCCL_HOSTID");
}

TEST_F(NcclBackendTest, AnOldDriverIsAnErrorAndNoneIsNone) {
    fake_gpus().driver_version = 12020;
    EXPECT_ERROR(cuda::device_count(), RunError, "up to 12.2", "13.0");
    fake_gpus().driver_version = 0;
    EXPECT_EQ(cuda::device_count(), 0);
}

TEST_F(NcclBackendTest, TooLittleMemorySaysHowMuchWasAskedFor) {
    const auto backend = this->backend();
    fake_gpus().free_bytes = 1000;
    EXPECT_ERROR(backend->allocate(1 << 20), RunError, "1048576 bytes", "1000 are free");
    EXPECT_NO_THROW(backend->allocate(1000));
}

TEST_F(NcclBackendTest, AnErrorAfterTheCallEndsTheWait) {
    const auto backend = this->backend();
    const auto memory = backend->allocate(kBytes);
    start_all_reduce(*backend, memory);
    backend->wait();
    ASSERT_TRUE(
        finished_within(ranks_.world.barrier(), 30));  // or who is behind would see the others give up
    fake_gpus().lose_next_operation = true;
    start_all_reduce(*backend, memory);
    EXPECT_ERROR(backend->wait(), RunError, "remote process exited", "fake: the other side",
                 "another rank ended, or its network connection broke");
}

TEST_F(NcclBackendTest, AnOperationThatARankStaysAwayFromIsGivenUp) {
    if (ranks_.size == 1) GTEST_SKIP() << "one rank alone waits for nobody";
    const auto backend = this->backend();
    const auto memory = backend->allocate(kBytes);
    if (is_last()) return;
    start_all_reduce(*backend, memory);
    const double begun = seconds_now();
    EXPECT_THROW(backend->wait(), WaitTimeout);
    EXPECT_GT(seconds_now() - begun, kTimeoutSeconds / 2);
}

TEST_F(NcclBackendTest, ACommunicatorThatARankStaysAwayFromIsGivenUp) {
    if (ranks_.size == 1) GTEST_SKIP() << "one rank alone waits for nobody";
    const mpi::Comm group = ranks_.world.duplicate();
    if (is_last()) return;
    EXPECT_THROW(make_nccl_backend(group, /*device=*/0, kTimeoutSeconds, /*log=*/nullptr), WaitTimeout);
}

TEST_F(NcclBackendTest, IterationsAreTimedOnTheStream) {
    const auto backend = this->backend(/*timeout_seconds=*/30);
    const auto memory = backend->allocate(kBytes);
    backend->start_clock();
    for (int i = 0; i < 3; ++i) {
        start_all_reduce(*backend, memory);
        backend->end_iteration();
    }
    const std::vector<double> seconds = backend->iteration_seconds();
    ASSERT_EQ(seconds.size(), 3U);
    for (const double one : seconds) EXPECT_GT(one, 0);
}

}  // namespace
}  // namespace argosy::bench

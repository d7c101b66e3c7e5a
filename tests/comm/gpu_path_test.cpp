// The path of tensors on GPUs, depending on the GPUs of the ranks; on stand-ins.
#include "comm/group.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "cuda/device.h"
#include "expect_error.h"
#include "support/fake_gpus.h"
#include "support/world.h"

namespace argosy::comm {
namespace {

using ::argosy::testing::fake_gpus;

class GpuPathTest : public ::testing::Test {
  protected:
    void SetUp() override { cuda::set_device(rank_); }
    void TearDown() override {
        fake_gpus() = usual_;
        cuda::set_device(0);
        const at::Tensor token = at::zeros({1}, at::kLong);
        testing::world().run({OpKind::AllReduce, token, token});
    }
    GpuPath choose() const { return choose_gpu_path(world_, GpuPath::Auto); }

    const mpi::Comm world_ = mpi::Comm::world();
    const int rank_ = world_.rank(), size_ = world_.size();
    const testing::FakeGpus usual_ = fake_gpus();
};

TEST_F(GpuPathTest, IsNcclWhereEachRankHasAGpu) { EXPECT_EQ(choose(), GpuPath::Nccl); }

TEST_F(GpuPathTest, AnOldNcclIsRefusedWhereItIsNeeded) {
    fake_gpus().nccl_version = 22505;
    EXPECT_ERROR(choose(), UserError, "NCCL 2.25.5", "2.26 or newer", "LD_LIBRARY_PATH");
    EXPECT_EQ(choose_gpu_path(world_, GpuPath::None), GpuPath::None);
}

TEST_F(GpuPathTest, IsNoneWithoutGpus) {
    fake_gpus().num_devices = 0;
    EXPECT_EQ(choose(), GpuPath::None);
    EXPECT_EQ(choose_gpu_path(world_, GpuPath::None), GpuPath::None);
    EXPECT_ERROR(choose_gpu_path(world_, GpuPath::Nccl), UserError, "comm.gpu_path", "no rank sees a GPU",
                 "leave it out");
}

TEST_F(GpuPathTest, RanksWithoutAGpuAreNamed) {
    if (size_ == 1) GTEST_SKIP() << "needs a rank with and one without";
    if (rank_ == 1) fake_gpus().num_devices = 0;
    for (const GpuPath wanted : {GpuPath::Auto, GpuPath::Nccl}) {
        EXPECT_ERROR(choose_gpu_path(world_, wanted), UserError, "rank 1 sees no GPU");
    }
}

TEST_F(GpuPathTest, RanksThatShareAGpuAreRefusedUnlessNcclSeesSeveralNodes) {
    if (size_ == 1) GTEST_SKIP() << "one rank alone shares nothing";
    cuda::set_device(0);
    for (const GpuPath wanted : {GpuPath::Auto, GpuPath::Nccl})
        EXPECT_ERROR(choose_gpu_path(world_, wanted), UserError, "rank 1", "shares its GPU",
                     "as many ranks on a node as it has GPUs");
    setenv("NCCL_HOSTID", std::to_string(rank_).c_str(), 1);
    EXPECT_EQ(choose(), GpuPath::Nccl);
    unsetenv("NCCL_HOSTID");
}

TEST_F(GpuPathTest, SubmissionsAreOfOneKind) {
    const at::Tensor host = at::zeros({4}), gpu = at::zeros({4});
    fake_gpus().host_tensors = {host.const_data_ptr()};
    const Op on_host{OpKind::AllReduce, host, host}, on_gpu{OpKind::AllReduce, gpu, gpu};
    EXPECT_FALSE(comm::on_gpu({&on_host, 1}));
    EXPECT_TRUE(comm::on_gpu({&on_gpu, 1}));
    EXPECT_ERROR(comm::on_gpu(std::vector{on_host, on_gpu}), RunError, "2 of 4 tensors");
}

}  // namespace
}  // namespace argosy::comm

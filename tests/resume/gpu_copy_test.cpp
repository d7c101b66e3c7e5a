// A save from a GPU is copied beside the next step and has the weights of its own step. The GPU is a stand-in
// whose copies are as late as they may be.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cstring>

#include "comm/backends.h"
#include "gpu/device.h"
#include "ops/ops_context.h"
#include "resume/save_plan.h"
#include "resume/saved_run.h"
#include "support/fake_gpus.h"
#include "support/shared_folder.h"
#include "support/world.h"

namespace argosy::testing {
namespace {

constexpr int64_t kSize = 6;

class GpuCopy : public ::testing::Test {
  protected:
    GpuCopy() { fake_gpus().late_copies = true; }
    ~GpuCopy() override { fake_gpus().late_copies = false; }

    resume::HeldSlab slab(ElementType type = ElementType::Float32) const {
        return {{{"model/w", type, {kSize}}, {.offset = {0}, .size = {kSize}}}, weights_};
    }
    static float first(std::span<const std::byte> bytes) {
        float value = 0;
        std::memcpy(&value, bytes.data(), sizeof value);
        return value;
    }

    const c10::Device device_ = gpu::use(world().rank());
    const ops::OpsContext tensors_;
    at::Tensor weights_ = at::full({kSize}, 1, at::kFloat);
    resume::ShardCopy copy_;
};

TEST_F(GpuCopy, IsTakenBeforeTheChangeThatWaitsForIt) {
    const auto bytes = copy_.copy({slab()})[0];
    EXPECT_TRUE(copy_.under_way());
    EXPECT_NE(first(bytes), 1) << "the copy waits";
    copy_.before_change();
    EXPECT_FALSE(copy_.under_way());
    weights_.fill_(2);
    copy_.wait();
    EXPECT_EQ(first(bytes), 1);
    // The same memory for the next one, of which the host waits for the end.
    EXPECT_EQ(copy_.copy({slab()})[0].data(), bytes.data());
    copy_.wait();
    EXPECT_FALSE(copy_.under_way());
    EXPECT_EQ(first(bytes), 2);
}

TEST_F(GpuCopy, IsAsLateAsItMayBe) {
    const auto bytes = copy_.copy({slab()})[0];
    weights_.fill_(2);  // without before_change()
    copy_.wait();
    EXPECT_EQ(first(bytes), 2) << "this stand-in shows no change that comes too early";
}

TEST_F(GpuCopy, BeginsAfterTheWorkBeforeIt) {
    bool computes = true;
    make_waiting(gpu::current_stream(), false);
    enqueue(
        gpu::current_stream(), [] {}, [&] { return !computes; });
    const auto bytes = copy_.copy({slab()})[0];
    const cuda::Event other;
    for (int i = 0; i < 100; ++i) (void)other.done();
    EXPECT_NE(first(bytes), 1);
    weights_.fill_(3);  // what the work does
    computes = false;
    copy_.wait();
    EXPECT_EQ(first(bytes), 3);
    make_waiting(gpu::current_stream(), true);
}

TEST_F(GpuCopy, ConvertsOnTheStreamOfTheWeights) {
    const auto bytes = copy_.copy({slab(ElementType::BFloat16)})[0];
    weights_.fill_(2);
    copy_.wait();
    EXPECT_EQ(first(bytes), first(std::as_bytes(std::span<const uint16_t>({0x3f80, 0x3f80}))));
}

TEST_F(GpuCopy, OfARunHasTheStateOfItsStep) {
    constexpr parallel::Precision kFloat{at::kFloat, at::kFloat, at::kFloat};
    const auto ranks = comm::all_ranks(comm::Backend::Nccl, "world", {.timeout_seconds = kTimeoutSeconds});
    const SharedFolder folder(*ranks);
    config::JobConfig config = saving_config(folder / "run");
    const TinyRunOptions options{.layout = {"fsdp", {.shard = world().size()}}, .precision = kFloat};
    std::vector<WholeState> expected;
    TinyRun without_saves(options, *ranks);
    for (int step = 0; step < 3; ++step) {
        without_saves.train(step);
        expected.push_back(whole_state(without_saves));
    }
    {
        SavedRun run(options, config, *ranks);
        for (int step = 0; step < 3; ++step) run.step();
        run.finish();
    }
    for (int step = 1; step <= 3; ++step) {
        config.checkpoint.load_step = step;
        SavedRun run(options, config, *ranks);
        EXPECT_EQ(run.restore().position.step, step);
        expect_equal(whole_state(run.run()), expected[step - 1]);
    }
}

}  // namespace
}  // namespace argosy::testing

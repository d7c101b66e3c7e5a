#include "observe/step_timer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "base/error.h"

namespace argosy::observe {
namespace {

constexpr layout::AxisSet kShardAxes = {layout::Axis::Shard, layout::Axis::Context};

double fake_now = 0;  // seconds; for tests that do not really wait

class SleepingCompletion : public comm::Completion {
  public:
    void wait() override { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }
};

/// A group of `size` ranks seen from its first rank; a wait on it can take time, on the fake clock or really.
class FakeCommunicator : public comm::Communicator {
  public:
    FakeCommunicator(std::string name, int size) : Communicator(std::move(name)), size_(size) {}
    int rank() const override { return 0; }
    int size() const override { return size_; }
    std::unique_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) const override {
        return std::make_unique<FakeCommunicator>(std::move(name), static_cast<int>(ranks.size()));
    }
    comm::Pending submit(std::span<const comm::Op>) override {
        return comm::Pending(std::make_unique<SleepingCompletion>(), {}, exposed_seconds_slot());
    }
    void stand_still(double seconds) {
        fake_now += seconds;
        *exposed_seconds_slot() += seconds;
    }

  private:
    int size_;
};

class StepTimerTest : public ::testing::Test {
  protected:
    void work(double seconds) { fake_now += seconds; }
    FakeCommunicator& group(layout::AxisSet axes, int parts = 1) {
        return static_cast<FakeCommunicator&>(mesh_.group(axes, parts));
    }
    static double sum_of_parts(const StepTimes& times) {
        return times.data_ms + times.compute_ms + times.optimizer_ms + times.checkpoint_ms +
               times.validation_ms + times.evaluation_ms + times.other_ms + times.all_exposed_ms();
    }

    FakeCommunicator world_{"world", 8};
    comm::Mesh mesh_{layout::MeshShape{{2, 1, 2, 1, 2}}, world_};
    StepTimer timer_{mesh_, [] { return fake_now; }};
};

TEST_F(StepTimerTest, SubtractsExposedCommunicationFromItsPhase) {
    timer_.start_step();
    work(0.001);
    {
        const auto phase = timer_.phase(Phase::Data);
        work(0.002);
    }
    {
        const auto phase = timer_.phase(Phase::Compute);
        work(0.010);
        group(layout::Axis::Tensor).stand_still(0.003);  // a group made in the middle of a step
        work(0.020);
        group(kShardAxes).stand_still(0.004);
    }
    {
        const auto phase = timer_.phase(Phase::Optimizer);
        world_.stand_still(0.005);
        work(0.006);
    }
    {
        const auto phase = timer_.phase(Phase::Checkpoint);
        work(0.008);
    }
    {
        const auto phase = timer_.phase(Phase::Validation);
        work(0.009);
    }
    {
        const auto phase = timer_.phase(Phase::Evaluation);
        work(0.011);
    }
    group(layout::Axis::Tensor).stand_still(0.007);
    const StepTimes times = timer_.finish_step();

    EXPECT_NEAR(times.total_ms, 86, 1e-9);
    EXPECT_NEAR(times.evaluation_ms, 11, 1e-9);
    EXPECT_NEAR(times.validation_ms, 9, 1e-9);
    EXPECT_NEAR(times.data_ms, 2, 1e-9);
    EXPECT_NEAR(times.compute_ms, 30, 1e-9);
    EXPECT_NEAR(times.optimizer_ms, 6, 1e-9);
    EXPECT_NEAR(times.checkpoint_ms, 8, 1e-9);
    EXPECT_NEAR(times.other_ms, 1, 1e-9);
    ASSERT_EQ(times.exposed_ms.size(), 3);
    EXPECT_NEAR(times.exposed_ms.at("tp"), 10, 1e-9);
    EXPECT_NEAR(times.exposed_ms.at("dp_shard"), 4, 1e-9);
    EXPECT_NEAR(times.exposed_ms.at("world"), 5, 1e-9);
    EXPECT_NEAR(sum_of_parts(times), times.total_ms, 1e-9);
}

TEST_F(StepTimerTest, AStepBeginsWhereTheOneBeforeEnded) {
    group(layout::Axis::Tensor).stand_still(0.900);  // before the first one
    timer_.start_step();
    group(layout::Axis::Tensor).stand_still(0.003);
    EXPECT_NEAR(timer_.finish_step().total_ms, 3, 1e-9);
    group(layout::Axis::Tensor).stand_still(0.020);
    work(0.500);
    timer_.start_step();
    group(layout::Axis::Tensor).stand_still(0.002);
    work(0.001);
    const StepTimes times = timer_.finish_step();
    EXPECT_NEAR(times.total_ms, 523, 1e-9);
    EXPECT_NEAR(times.exposed_ms.at("tp"), 22, 1e-9);
    EXPECT_NEAR(times.other_ms, 501, 1e-9);
}

TEST_F(StepTimerTest, AnInnerPhaseDoesNotCountForTheOuterOne) {
    timer_.start_step();
    {
        const auto outer = timer_.phase(Phase::Compute);
        work(0.001);
        {
            const auto inner = timer_.phase(Phase::Data);
            work(0.002);
        }
        work(0.004);
    }
    const StepTimes times = timer_.finish_step();
    EXPECT_NEAR(times.compute_ms, 5, 1e-9);
    EXPECT_NEAR(times.data_ms, 2, 1e-9);
    EXPECT_NEAR(times.other_ms, 0, 1e-9);
}

TEST_F(StepTimerTest, CommunicationWhileTrainingPausesBelongsToThePause) {
    const auto step = [&](bool validates) {
        timer_.start_step();
        timer_.in(Phase::Compute, [&] {
            work(0.001);
            group(kShardAxes).stand_still(0.002);
            group(layout::Axis::Pipeline).stand_still(0.004);
        });
        for (const Phase pause : {Phase::Validation, Phase::Evaluation}) {
            timer_.in(pause, [&] {
                if (!validates) return;
                work(0.010);
                group(kShardAxes).stand_still(0.020);
                group(layout::Axis::Pipeline).stand_still(0.040);
                group(layout::Axis::Tensor).stand_still(0.080);
            });
        }
        return timer_.finish_step();
    };
    for (const bool validates : {true, false}) {
        const StepTimes times = step(validates);
        EXPECT_NEAR(times.validation_ms, validates ? 150 : 0, 1e-9);
        EXPECT_NEAR(times.evaluation_ms, validates ? 150 : 0, 1e-9);
        EXPECT_NEAR(times.compute_ms, 1, 1e-9);
        EXPECT_NEAR(times.exposed_ms.at("dp_shard"), 2, 1e-9);
        EXPECT_NEAR(times.exposed_ms.at("pp"), 4, 1e-9);
        EXPECT_EQ(times.exposed_ms.at("tp"), 0) << "every step has the same axes";
        EXPECT_NEAR(sum_of_parts(times), times.total_ms, 1e-9);
    }
}

TEST_F(StepTimerTest, SplitsComputationByKind) {
    timer_.start_step();
    timer_.compute(ComputeKind::Forward);  // outside of the phase
    work(0.100);
    timer_.in(Phase::Compute, [&] {
        work(0.001);
        timer_.compute(ComputeKind::Forward);
        work(0.002);
        group(layout::Axis::Tensor).stand_still(0.050);
        timer_.compute(ComputeKind::Backward);
        work(0.004);
        timer_.in(Phase::Data, [&] { work(0.200); });
        work(0.008);
        timer_.compute(ComputeKind::Forward);
        work(0.016);
    });
    const StepTimes times = timer_.finish_step();
    ASSERT_TRUE(times.compute_kinds_ms);
    const auto ms = [&](ComputeKind kind) { return (*times.compute_kinds_ms)[static_cast<size_t>(kind)]; };
    EXPECT_NEAR(ms(ComputeKind::Forward), 18, 1e-9);
    EXPECT_NEAR(ms(ComputeKind::Backward), 4, 1e-9);
    EXPECT_NEAR(ms(ComputeKind::Other), 9, 1e-9);  // after the inner phase until the next call, too
    EXPECT_NEAR(times.compute_ms, 31, 1e-9);

    timer_.start_step();
    timer_.in(Phase::Compute, [&] { work(0.001); });
    EXPECT_FALSE(timer_.finish_step().compute_kinds_ms);
}

TEST_F(StepTimerTest, MovesNoMoreThanThereIs) {
    timer_.start_step();
    timer_.in(Phase::Compute, [&] {
        work(0.030);
        group(layout::Axis::Tensor).stand_still(0.010);
    });
    timer_.move(Phase::Compute, Phase::Data, 0.005);
    timer_.move(Phase::Optimizer, Phase::Data, 0.005);
    const StepTimes times = timer_.finish_step();
    EXPECT_NEAR(times.compute_ms, 25, 1e-9);
    EXPECT_NEAR(times.data_ms, 5, 1e-9);
    EXPECT_NEAR(sum_of_parts(times), times.total_ms, 1e-9);
}

TEST_F(StepTimerTest, GroupsOfOneNameAreSummedAndGroupsOfOneRankAreNotListed) {
    timer_.start_step();
    group(layout::Axis::Shard, 1).stand_still(0.001);
    group({layout::Axis::Shard, layout::Axis::Tensor}, 1).stand_still(0.002);
    group({layout::Axis::Shard, layout::Axis::Tensor}, 2).stand_still(0.004);
    group(layout::Axis::Context).stand_still(0.008);
    const StepTimes times = timer_.finish_step();
    EXPECT_NEAR(times.exposed_ms.at("dp_shard"), 1, 1e-9);
    EXPECT_NEAR(times.exposed_ms.at("dp_shard x tp"), 6, 1e-9);
    EXPECT_FALSE(times.exposed_ms.contains("cp"));
    EXPECT_NEAR(times.other_ms, 8, 1e-9);
    EXPECT_NEAR(sum_of_parts(times), times.total_ms, 1e-9);
}

TEST_F(StepTimerTest, RefusesWrongOrder) {
    EXPECT_THROW(timer_.finish_step(), RunError);
    EXPECT_THROW({ const auto phase = timer_.phase(Phase::Data); }, RunError);
    timer_.start_step();
    EXPECT_THROW(timer_.start_step(), RunError);
    {
        const auto phase = timer_.phase(Phase::Data);
        EXPECT_THROW(timer_.finish_step(), RunError);
    }
    timer_.finish_step();
}

TEST_F(StepTimerTest, ReadsRealWaits) {
    StepTimer timer(mesh_);
    timer.start_step();
    {
        const auto phase = timer.phase(Phase::Compute);
        group(layout::Axis::Tensor).run(comm::Op{comm::OpKind::AllReduce});
    }
    const StepTimes times = timer.finish_step();
    EXPECT_GE(times.exposed_ms.at("tp"), 20);
    EXPECT_LT(times.compute_ms, times.exposed_ms.at("tp"));
    EXPECT_NEAR(sum_of_parts(times), times.total_ms, 1e-6);
}

TEST(StepTimes, Add) {
    StepTimes sum{
        .total_ms = 10, .data_ms = 1, .compute_ms = 2, .optimizer_ms = 3, .checkpoint_ms = 4, .other_ms = 1};
    sum.exposed_ms = {{"tp", 3.0}};
    StepTimes more = sum;
    more.exposed_ms = {{"tp", 1.0}, {"pp", 2.0}};
    more.compute_kinds_ms = {1, 1};
    sum += more;
    sum += more;
    EXPECT_EQ(sum.total_ms, 30);
    EXPECT_EQ(sum.data_ms, 3);
    EXPECT_EQ(sum.compute_ms, 6);
    EXPECT_EQ(sum.optimizer_ms, 9);
    EXPECT_EQ(sum.checkpoint_ms, 12);
    EXPECT_EQ(sum.other_ms, 3);
    EXPECT_EQ(sum.exposed_ms.at("tp"), 5);
    EXPECT_EQ(sum.all_exposed_ms(), 9);
    EXPECT_EQ((*sum.compute_kinds_ms)[static_cast<size_t>(ComputeKind::Recompute)], 2);
}

}  // namespace
}  // namespace argosy::observe

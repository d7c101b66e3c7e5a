// The NCCL backend: the order of streams, memory, exposed time and graphs. The streams of the stand-ins only
// advance when the host queries them.
#include "comm/nccl_communicator.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "comm/backends.h"
#include "comm/numbers.h"
#include "expect_error.h"
#include "gpu/device.h"
#include "support/fake_gpus.h"
#include "support/world.h"

namespace argosy::comm {
namespace {

using ::argosy::testing::fake_gpus;
using ::argosy::testing::kTimeoutSeconds;

constexpr int64_t kElements = 100;

class OverNccl : public ::testing::Test {
  protected:
    void SetUp() override {
        if (size_ == 1) GTEST_SKIP() << "one rank alone sends nothing";
    }
    void TearDown() override {
        testing::make_waiting(gpu::current_stream());
        gpu::synchronize();
        fake_gpus() = usual_;
        const at::Tensor token = at::zeros({1}, at::kLong);
        testing::world().run({OpKind::AllReduce, token, token});
    }

    at::Tensor own() const { return numbers(rank_, kElements, at::kFloat); }
    at::Tensor sum() const {
        at::Tensor all = at::zeros({kElements});
        for (int rank = 0; rank < size_; ++rank) all += numbers(rank, kElements, at::kFloat);
        return all;
    }

    /// From now on the compute stream, too, only advances when the host queries it.
    static void make_lazy() { testing::make_waiting(gpu::current_stream(), false); }

    /// Puts a kernel on the compute stream that ends at the query number `min_queries`.
    static void compute(std::function<void()> kernel, int min_queries = 20) {
        testing::enqueue(
            gpu::current_stream(), [] {},
            [kernel = std::move(kernel), queries_left = min_queries]() mutable {
                if (--queries_left > 0) return false;
                kernel();
                return true;
            });
    }
    static void compute_copy(const at::Tensor& to, const at::Tensor& from, int min_queries = 20) {
        compute([=] { std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes()); },
                min_queries);
    }

    const std::unique_ptr<Communicator> world_ =
        all_ranks(Backend::Nccl, "world", {.timeout_seconds = kTimeoutSeconds});
    const int rank_ = world_->rank(), size_ = world_->size();
    const testing::FakeGpus usual_ = fake_gpus();
};

TEST_F(OverNccl, NothingIsThereBeforeWait) {
    const at::Tensor both = own();
    Pending pending = world_->submit({OpKind::AllReduce, both, both});
    EXPECT_TRUE(at::equal(both, own()));
    pending.wait();
    EXPECT_TRUE(at::equal(both, sum()));
}

TEST_F(OverNccl, ComesAfterWhatIsComputedBeforeAndBeforeWhatIsComputedAfter) {
    const at::Tensor in = at::full({kElements}, -1.0F), out = at::full({kElements}, -2.0F),
                     later = at::zeros({kElements});
    const at::Tensor made = own(), other = at::full({kElements}, -3.0F);
    make_lazy();
    compute_copy(in, made);
    Pending pending = world_->submit({OpKind::AllReduce, out, in});
    pending.wait();
    EXPECT_EQ(out[0].item<float>(), -2) << "the host waited";
    compute_copy(later, out, /*min_queries=*/1);
    compute_copy(out, other);  // as if its memory was reused
    compute_copy(in, other);
    gpu::synchronize();
    EXPECT_TRUE(at::equal(later, sum()));
    EXPECT_TRUE(at::equal(out, other));
}

TEST_F(OverNccl, MessagesOfBothDirectionsHoldUpNothing) {
    world_->open_channels();
    const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
    const at::Tensor forth = own(), back = own() * 2, from_previous = at::zeros({kElements}),
                     from_next = at::zeros({kElements}), both = own();
    std::vector<Pending> pending;
    pending.push_back(world_->submit(Op{.kind = OpKind::Send, .in = forth, .peer = next}));
    pending.push_back(world_->submit(Op{.kind = OpKind::Send, .in = back, .peer = previous}));
    world_->run({OpKind::AllReduce, both, both});  // ends although the messages do not
    EXPECT_TRUE(at::equal(both, sum()));
    world_->run(Op{.kind = OpKind::Receive, .out = from_previous, .peer = previous});
    world_->run(Op{.kind = OpKind::Receive, .out = from_next, .peer = next});
    for (Pending& one : pending) one.wait();
    EXPECT_TRUE(at::equal(from_previous, numbers(previous, kElements, at::kFloat)));
    EXPECT_TRUE(at::equal(from_next, numbers(next, kElements, at::kFloat) * 2));
}

TEST_F(OverNccl, AReceiveRunsBesideWorkThatIsLaunchedAfterIt) {
    world_->open_channels();
    const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
    const at::Tensor sent = own(), received = at::zeros({kElements}),
                     expected = numbers(previous, kElements, at::kFloat);
    make_lazy();
    Pending send = world_->submit(Op{.kind = OpKind::Send, .in = sent, .peer = next});
    Pending receive = world_->submit(Op{.kind = OpKind::Receive, .out = received, .peer = previous});
    bool came = false;
    const double start = seconds_now();
    testing::enqueue(
        gpu::current_stream(), [] {},  // a kernel that ends once the message is there
        [&] {
            came = at::equal(received, expected);
            return came || seconds_now() - start > kTimeoutSeconds / 2;
        });
    receive.wait();
    send.wait();
    gpu::synchronize();
    EXPECT_TRUE(came) << "the receive waits for work that was launched after it";
}

TEST_F(OverNccl, AGatherDoesNotWaitForAReduction) {
    const at::Tensor both = own(), all = at::zeros({kElements * size_}), piece = own();
    world_->run({OpKind::AllReduce, both, both});
    fake_gpus().stall_next_operation = true;
    Pending reduction = world_->submit({OpKind::ReduceScatter, piece, all.clone()});
    world_->run({OpKind::AllGather, all, both});  // ends although the reduction does not
    for (int rank = 0; rank < size_; ++rank) {
        EXPECT_TRUE(at::equal(all.narrow(0, rank * kElements, kElements), both));
    }
    fake_gpus().end_stalled = true;
    reduction.wait();
}

TEST_F(OverNccl, ChannelsAreUnderWayFromSubmissionToWait) {
    const auto limited =
        all_ranks(Backend::Nccl, "limited",
                  {.timeout_seconds = kTimeoutSeconds, .collective_channels = 16, .message_channels = 4});
    const auto all = [&] {
        std::vector<int> ranks(size_);
        for (int rank = 0; rank < size_; ++rank) ranks[rank] = rank;
        return ranks;
    }();
    const auto part = limited->subgroup(all, "part");
    part->open_channels();
    const at::Tensor sums = own(), gathered = at::zeros({size_ * kElements}), mine = own(),
                     theirs = at::zeros({kElements});
    EXPECT_EQ(limited->channels_under_way(), 0);
    Pending reduction = limited->submit({OpKind::AllReduce, sums, sums});
    EXPECT_EQ(limited->channels_under_way(), 16);
    Pending same_lane = limited->submit({OpKind::AllReduce, gathered, gathered});
    EXPECT_EQ(limited->channels_under_way(), 16) << "runs after the other one";
    same_lane.wait();
    Pending gather = part->submit({OpKind::AllGather, gathered, mine});
    EXPECT_EQ(limited->channels_under_way(), 32) << "a group counts for the others of its ranks";
    const Op to_next{.kind = OpKind::Send, .in = mine, .peer = (rank_ + 1) % size_},
        from_previous{.kind = OpKind::Receive, .out = theirs, .peer = (rank_ + size_ - 1) % size_};
    {
        const Pending messages = part->submit(std::vector{to_next, from_previous});
        EXPECT_EQ(part->channels_under_way(), 40);
    }
    EXPECT_EQ(limited->channels_under_way(), 32) << "the destructor waits";
    gather.wait();
    reduction.wait();
    EXPECT_EQ(limited->channels_under_way(), 0);
}

/// Groups whose tensors for transfers are registered with NCCL.
class RegisteredWithNccl : public OverNccl {
  protected:
    std::unique_ptr<Communicator> group() const {
        return all_ranks(Backend::Nccl, "registered",
                         {.timeout_seconds = kTimeoutSeconds, .registered_memory = true});
    }
};

TEST_F(RegisteredWithNccl, CollectivesNeedNoChannels) {
    const auto group = this->group();
    const auto make = [&](Collectives kind, int64_t elements) {
        return group->make_tensor(kind, {elements}, at::kFloat);
    };
    const at::Tensor mine = make(Collectives::Others, kElements),
                     all = make(Collectives::Others, size_ * kElements);
    mine.copy_(own());
    group->run({OpKind::AllGather, all, mine});
    gpu::synchronize();
    for (int rank = 0; rank < size_; ++rank)
        EXPECT_TRUE(
            at::equal(all.narrow(0, rank * kElements, kElements), numbers(rank, kElements, at::kFloat)));
    EXPECT_EQ(fake_gpus().num_gathers_by_copy_engines - usual_.num_gathers_by_copy_engines, 1);

    const at::Tensor sums = make(Collectives::Reductions, kElements);
    const at::Tensor addends = make(Collectives::Reductions, size_ * kElements);
    addends.copy_(own().repeat({size_}));
    group->run({OpKind::ReduceScatter, sums, addends});
    gpu::synchronize();
    EXPECT_TRUE(at::equal(sums, sum()));
    EXPECT_EQ(fake_gpus().num_registered_reductions - usual_.num_registered_reductions, 1);
    group->run({OpKind::ReduceScatter, sums, own().repeat({size_})});
    EXPECT_EQ(fake_gpus().num_registered_reductions - usual_.num_registered_reductions, 1) << "other memory";
    EXPECT_EQ(group->connections().registered_bytes, 2 * (64 << 20)) << "a segment for each kind";
}

TEST_F(RegisteredWithNccl, AFreedTensorGivesItsPlaceToTheNextOfItsSize) {
    const auto group = this->group();
    const auto make = [&](int64_t elements) {
        return group->make_tensor(Collectives::Others, {elements}, at::kFloat);
    };
    at::Tensor first = make(1000);
    const at::Tensor second = make(1000), large = make(20 << 20);
    const void* const place = first.const_data_ptr();
    EXPECT_NE(second.const_data_ptr(), place);
    first.reset();
    EXPECT_NE(make(2000).const_data_ptr(), place);
    const at::Tensor again = make(1000);
    EXPECT_EQ(again.const_data_ptr(), place);
    EXPECT_EQ(group->connections().registered_bytes, (64 + 80) << 20) << "80 MiB fit in no segment";
}

TEST_F(RegisteredWithNccl, TensorsOutliveTheirGroup) {
    auto group = this->group();
    const at::Tensor kept = group->make_tensor(Collectives::Others, {kElements}, at::kFloat);
    group.reset();
    EXPECT_TRUE(at::equal(kept.fill_(3), at::full({kElements}, 3.0)));
}

TEST_F(RegisteredWithNccl, MemoryThatNcclLeavesAloneIsCounted) {
    fake_gpus().reaches_peers = false;
    const auto group = this->group();
    const at::Tensor tensor = group->make_tensor(Collectives::Others, {kElements}, at::kFloat);
    EXPECT_EQ(group->connections().registered_bytes, 0);
    EXPECT_EQ(group->connections().refused_bytes, 64 << 20);
}

TEST_F(RegisteredWithNccl, NeedsANewerNccl) {
    fake_gpus().nccl_version = 22707;
    const auto group = this->group();
    EXPECT_ERROR(group->make_tensor(Collectives::Others, {kElements}, at::kFloat), UserError,
                 "comm.registered_memory", "NCCL 2.28.0 or newer", "2.27.7", "remove the key");
}

TEST_F(RegisteredWithNccl, NothingIsRegisteredWhileAGraphIsRecorded) {
    const auto group = this->group();
    const at::Tensor before = group->make_tensor(Collectives::Others, {kElements}, at::kFloat);
    fake_gpus().captures = 7;
    EXPECT_NO_THROW(group->make_tensor(Collectives::Others, {kElements}, at::kFloat));
    EXPECT_ERROR(group->make_tensor(Collectives::Others, {64 << 20}, at::kFloat), RunError,
                 "while a graph is recorded");
}

TEST_F(OverNccl, AMessageNeedsAChannel) {
    const at::Tensor both = own();
    EXPECT_ERROR(world_->submit(Op{.kind = OpKind::Send, .in = both, .peer = 0}), RunError,
                 "without a channel");
}

TEST_F(OverNccl, TensorsOfTheHostStayThere) {
    const at::Tensor on_gpu = own(), on_host = own();
    fake_gpus().host_tensors = {on_host.const_data_ptr()};
    world_->run({OpKind::AllReduce, on_gpu, on_gpu});
    fake_gpus().lose_next_operation = true;
    world_->run({OpKind::AllReduce, on_host, on_host});
    EXPECT_TRUE(fake_gpus().lose_next_operation) << "NCCL took it";
    EXPECT_TRUE(at::equal(on_host, sum()));
    EXPECT_TRUE(at::equal(on_gpu, sum()));
}

// Several attempts, because a busy machine may spoil any of them.
TEST_F(OverNccl, ExposedIsTheTimeThatTheComputeStreamWaited) {
    constexpr auto kLate = std::chrono::milliseconds(200);
    const at::Tensor both = own();
    world_->run({OpKind::AllReduce, both, both});
    double max_exposed = 0;
    for (int attempt = 0; attempt < 5; ++attempt) {
        const double before = world_->exposed_seconds();
        if (rank_ == 0) std::this_thread::sleep_for(kLate);
        world_->run({OpKind::AllReduce, both, both});
        max_exposed = std::max(max_exposed, world_->exposed_seconds() - before);
    }
    if (rank_ != 0) {
        EXPECT_GE(max_exposed, 0.1);
    }
    EXPECT_LT(max_exposed, 20);
}

TEST_F(OverNccl, WhatWasHiddenIsNotExposed) {
    const at::Tensor both = own();
    world_->run({OpKind::AllReduce, both, both});
    double min_exposed = 1;
    for (int attempt = 0; attempt < 5; ++attempt) {
        const double before = world_->exposed_seconds();
        Pending pending = world_->submit({OpKind::AllReduce, both, both});
        const double start = seconds_now();
        while (seconds_now() - start < 0.2) gpu::synchronize();  // advances the streams
        pending.wait();
        min_exposed = std::min(min_exposed, world_->exposed_seconds() - before);
    }
    EXPECT_LT(min_exposed, 0.1);
}

TEST_F(OverNccl, ExposedTimeIsCountedOnceItIsKnown) {
    const at::Tensor both = own();
    world_->run({OpKind::AllReduce, both, both});
    make_lazy();
    const double before = world_->exposed_seconds();
    world_->run({OpKind::AllReduce, both, both});
    EXPECT_EQ(world_->exposed_seconds(), before);  // nobody waits for the figure
    gpu::synchronize();
    EXPECT_GT(world_->exposed_seconds(), before);
}

// The stand-ins refuse calls that are not allowed while a graph is recorded.
TEST_F(OverNccl, MayBePartOfAGraph) {
    const at::Tensor both = own();
    fake_gpus().captures = 1;
    EXPECT_ERROR(world_->submit({OpKind::AllReduce, both, both}), RunError, "while a graph is recorded");
    fake_gpus().captures = 0;
    world_->run({OpKind::AllReduce, both, both});
    const at::Tensor again = own();
    fake_gpus().captures = 1;
    world_->run({OpKind::AllReduce, again, again});
    const double exposed = world_->exposed_seconds();
    fake_gpus().captures = 0;
    EXPECT_TRUE(at::equal(again, sum()));
    EXPECT_LT(exposed, 10);
    world_->run({OpKind::AllReduce, both, both});  // uses events of the pool that the graph used
}

// The stand-ins do not repeat operations at a launch, so each launch measures the times of the recording.
class WaitsWithinAGraph : public OverNccl {
  protected:
    void SetUp() override {
        OverNccl::SetUp();
        if (!IsSkipped()) world_->run({OpKind::AllReduce, both_, both_});
    }
    void record(int graph) {
        fake_gpus().captures = graph;
        world_->run({OpKind::AllReduce, both_, both_});
        fake_gpus().captures = 0;
    }
    void launch(int graph) {
        world_->launch_graph("graph", [&] {
            testing::copy_again(graph, gpu::current_stream());
            return graph;
        });
    }
    double exposed_by_launch(int graph) {
        const double before = world_->exposed_seconds();
        launch(graph);
        return world_->exposed_seconds() - before;
    }

    const at::Tensor both_ = own();
    static inline int num_graphs_ = 100;  // numbers that no other test uses
    const int first_ = ++num_graphs_, second_ = ++num_graphs_;
};

TEST_F(WaitsWithinAGraph, CountAtEachLaunch) {
    world_->label_exposed(3);
    record(first_);
    world_->label_exposed(4);
    const double one = exposed_by_launch(first_);
    EXPECT_GT(one, 0);
    EXPECT_NEAR(exposed_by_launch(first_), one, 1e-9);
    EXPECT_NEAR(world_->exposed_seconds_of(3), 2 * one, 1e-9) << "the label of the recording";
    EXPECT_EQ(world_->exposed_seconds_of(4), 0);
    record(second_);
    const double other = exposed_by_launch(second_);
    EXPECT_GT(other, 0);
    EXPECT_NEAR(exposed_by_launch(first_), one, 1e-9);
    EXPECT_NEAR(exposed_by_launch(second_), other, 1e-9);
}

TEST_F(WaitsWithinAGraph, CountForAllLaunches) {
    record(first_);
    record(second_);
    const double one = exposed_by_launch(first_), other = exposed_by_launch(second_);
    const double before = world_->exposed_seconds();
    const int without_operations = ++num_graphs_;
    launch(without_operations);
    launch(first_);
    for (int i = 0; i < 2; ++i) launch(without_operations);
    for (int i = 0; i < 3; ++i) launch(second_);
    EXPECT_NEAR(world_->exposed_seconds() - before, one + 3 * other, 1e-9);
}

TEST_F(WaitsWithinAGraph, AreNotAskedForWhileItIsUnderWay) {
    record(first_);
    launch(first_);
    const double known = world_->exposed_seconds();
    make_lazy();
    compute([] {}, 1000);
    launch(first_);
    EXPECT_EQ(world_->exposed_seconds(), known);
    gpu::synchronize();
    EXPECT_GT(world_->exposed_seconds(), known);
}

}  // namespace
}  // namespace argosy::comm

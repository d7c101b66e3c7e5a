// Exchanges along a ring by copies to the memory of other processes, over stand-ins whose copies end as late
// as they may. The compute stream only advances when the host queries it.
#include "comm/peer_memory.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "comm/backends.h"
#include "comm/numbers.h"
#include "cuda/stream.h"
#include "expect_error.h"
#include "gpu/device.h"
#include "support/fake_gpus.h"
#include "support/world.h"

namespace argosy::comm {
namespace {

using ::argosy::testing::fake_gpus;
using ::argosy::testing::kTimeoutSeconds;

constexpr int64_t kMessage = 1000;

class PeerCopies : public ::testing::Test {
  protected:
    void SetUp() override {
        if (size_ == 1) GTEST_SKIP() << "one rank alone sends nothing";
    }
    void TearDown() override {
        group_.reset();
        testing::make_waiting(gpu::current_stream());
        gpu::synchronize();
        fake_gpus() = usual_;
        const at::Tensor token = at::zeros({1}, at::kLong);
        testing::world().run({OpKind::AllReduce, token, token});
    }

    void open(GroupOptions options = {}) {
        options.timeout_seconds = kTimeoutSeconds;
        options.peer_copies = true;
        group_ = all_ranks(Backend::Nccl, "ring", options);
        group_->open_ring();
    }
    /// Whether the exchanges are copies.
    bool copies() const { return group_->connections().number == 0; }

    at::Tensor room() const { return group_->make_ring_tensor({kMessage}, at::kFloat); }
    Pending exchange(const at::Tensor& out, const at::Tensor& there, const at::Tensor& in) const {
        return group_->submit(std::vector<Op>{{.kind = OpKind::Send, .out = there, .in = out, .peer = next_},
                                              {.kind = OpKind::Receive, .out = in, .peer = previous_}});
    }
    at::Tensor of(int rank, int round) const { return numbers(rank + 10 * round, kMessage, at::kFloat); }

    /// Puts a kernel on the compute stream that ends at the query number `min_queries`.
    static void compute(std::function<void()> kernel, int min_queries) {
        testing::enqueue(
            gpu::current_stream(), [] {},
            [kernel = std::move(kernel), queries_left = min_queries]() mutable {
                if (--queries_left > 0) return false;
                kernel();
                return true;
            });
    }
    static void compute_copy(const at::Tensor& to, const at::Tensor& from, int min_queries) {
        compute([=] { std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes()); },
                min_queries);
    }

    const int rank_ = testing::world().rank(), size_ = testing::world().size();
    const int next_ = (rank_ + 1) % size_, previous_ = (rank_ + size_ - 1) % size_;
    const testing::FakeGpus usual_ = fake_gpus();
    std::unique_ptr<Communicator> group_;
};

// Each rank's kernels take another time, so that ranks are ahead of and behind their neighbours. The numbers
// of the messages wrap around meanwhile.
TEST_F(PeerCopies, ArriveInRoomThatIsFreeAndLeaveTensorsThatMayChange) {
    open();
    ASSERT_TRUE(copies());
    testing::make_waiting(gpu::current_stream(), false);
    constexpr int kRounds = 40;
    std::vector<at::Tensor> found, sent;
    const at::Tensor out = at::full({kMessage}, -1.0F), spoiled = at::full({kMessage}, -2.0F);
    for (int round = 0; round < kRounds; ++round) {
        found.push_back(at::full({kMessage}, -3.0F));
        sent.push_back(of(rank_, round));
        const at::Tensor in = room();  // the same place in every round
        compute_copy(out, sent.back(), 1 + 7 * rank_);
        Pending pending = exchange(out, in, in);
        pending.wait();
        compute_copy(found.back(), in, 1 + 5 * ((rank_ + round) % size_));  // while the next rank goes on
        compute_copy(out, spoiled, 1);
    }
    gpu::synchronize();
    for (int round = 0; round < kRounds; ++round)
        ASSERT_TRUE(at::equal(found[round], of(previous_, round))) << round;
    EXPECT_EQ(fake_gpus().num_copies_to_peers - usual_.num_copies_to_peers, kRounds);
    EXPECT_EQ(group_->connections().peer_bytes, 64 << 20);
}

/// Rows of all ranks travel around the ring, as in async tensor parallelism.
TEST_F(PeerCopies, PassOnWhatTheyReceived) {
    open();
    const at::Tensor all = group_->make_ring_tensor({size_, kMessage}, at::kFloat);
    all[rank_].copy_(of(rank_, 0));
    for (int turn = 0; turn + 1 < size_; ++turn) {
        const int sent = (rank_ + size_ - turn) % size_, received = (rank_ + size_ - turn - 1) % size_;
        exchange(all[sent], all[sent], all[received]).wait();
    }
    for (int rank = 0; rank < size_; ++rank) EXPECT_TRUE(at::equal(all[rank], of(rank, 0))) << rank;
}

// The copy of a rank that is ahead must not land while the next rank still reads what was there before.
TEST_F(PeerCopies, AwaitASlowReader) {
    open();
    fake_gpus().seconds_of_copy_to_peer = 0;
    const at::Tensor first = room(), mine = of(rank_, 0), later = of(rank_, 1);
    exchange(mine, first, first).wait();
    if (rank_ % 2 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_TRUE(at::equal(first, of(previous_, 0)));
    exchange(later, first, first).wait();
    EXPECT_TRUE(at::equal(first, of(previous_, 1)));
}

TEST_F(PeerCopies, RunBesideAKernelThatWaitsForThem) {
    open();
    testing::make_waiting(gpu::current_stream(), false);
    const at::Tensor in = room(), expected = of(previous_, 0), mine = of(rank_, 0);
    compute([&] { in.zero_(); }, 1);
    Pending pending = exchange(mine, in, in);
    bool came = false;
    const double start = seconds_now();
    testing::enqueue(
        gpu::current_stream(), [] {},
        [&] {
            came = at::equal(in, expected);
            return came || seconds_now() - start > kTimeoutSeconds / 2;
        });
    pending.wait();
    gpu::synchronize();
    EXPECT_TRUE(came) << "the exchange waits for work that was launched after it";
}

TEST_F(PeerCopies, OfLargeTensorsAddSegments) {
    open();
    const at::Tensor small = room(), in = group_->make_ring_tensor({16 << 20}, at::kFloat),
                     mine = at::full({16 << 20}, static_cast<float>(rank_));
    exchange(mine, in, in).wait();
    EXPECT_TRUE(at::equal(in, at::full({16 << 20}, static_cast<float>(previous_))));
    EXPECT_EQ(group_->connections().peer_bytes, (64 + 64) << 20);
}

TEST_F(PeerCopies, HaveTensorsThatOutliveTheirGroup) {
    open();
    const at::Tensor kept = room();
    group_.reset();
    EXPECT_TRUE(at::equal(kept.fill_(3), at::full({kMessage}, 3.0)));
}

TEST_F(PeerCopies, AreOneSendAndOneReceiveInThePool) {
    open();
    const at::Tensor in = room(), out = at::zeros({kMessage});
    EXPECT_ERROR(group_->submit(Op{.kind = OpKind::Receive, .out = in, .peer = previous_}), RunError,
                 "one send and one receive");
    fake_gpus().captures = 9;
    EXPECT_ERROR(exchange(out, in, in), RunError, "while a graph is recorded");
}

TEST_F(PeerCopies, GoNowhereElseThanThePool) {
    open();
    const at::Tensor out = at::zeros({kMessage}), other = at::zeros({kMessage}), in = room();
    EXPECT_ERROR(exchange(out, other, in), RunError, "memory outside of its pool");
}

TEST_F(PeerCopies, EndTheWaitsForARankThatIsGone) {
    const auto host = all_ranks(Backend::Mpi, "ring", {.timeout_seconds = kTimeoutSeconds});
    cuda::set_device(rank_);
    const std::shared_ptr<PeerMemory> memory = PeerMemory::open(*host).memory;
    ASSERT_NE(memory, nullptr);
    const at::Tensor in = memory->make({kMessage}, at::kFloat), mine = of(rank_, 0);
    const cuda::Stream out_stream, in_stream;
    if (rank_ != 0) {
        memory->exchange({.kind = OpKind::Send, .out = in, .in = mine, .peer = next_}, out_stream, in_stream);
        for (int i = 0; i < 100; ++i) out_stream.done();
        if (previous_ == 0) {
            EXPECT_FALSE(in_stream.done());
        }
        memory->end_waits();
        out_stream.synchronize();
        in_stream.synchronize();
    }
}

class WithoutPeerCopies : public PeerCopies {
  protected:
    /// The exchange works as ever.
    void expect_nccl() {
        open();
        EXPECT_FALSE(copies());
        const at::Tensor in = room(), mine = of(rank_, 0);
        exchange(mine, in, in).wait();
        EXPECT_TRUE(at::equal(in, of(previous_, 0)));
        EXPECT_EQ(fake_gpus().num_copies_to_peers, usual_.num_copies_to_peers);
        EXPECT_EQ(group_->connections().peer_bytes, 0);
    }
};

// One rank alone has the obstacle, and all of them do without copies.
TEST_F(WithoutPeerCopies, ExchangesOfHiddenGpusGoThroughNccl) {
    // each rank sees its own GPU, as Slurm's --gpus-per-task does it
    fake_gpus().num_devices = 1;
    fake_gpus().first_device = rank_;
    cuda::set_device(0);
    mpi::Comm world = mpi::Comm::world();
    group_ = make_communicator(
        std::move(world), "ring",
        {.timeout_seconds = kTimeoutSeconds, .gpu_path = GpuPath::Nccl, .peer_copies = true});
    group_->open_ring();
    EXPECT_FALSE(copies());
}

TEST_F(WithoutPeerCopies, ExchangesOfGpusThatDoNotReachEachOther) {
    if (rank_ == size_ - 1) fake_gpus().reaches_peers = false;
    expect_nccl();
}

TEST_F(WithoutPeerCopies, ExchangesWhereMemoryIsNotMapped) {
    if (rank_ == 0) fake_gpus().maps_memory = false;
    expect_nccl();
}

TEST_F(WithoutPeerCopies, ExchangesWhereStreamsAwaitNoValues) {
    if (rank_ == 0) fake_gpus().has_stream_values = false;
    expect_nccl();
}

TEST_F(PeerCopies, AreOffByDefault) {
    group_ = all_ranks(Backend::Nccl, "ring", {.timeout_seconds = kTimeoutSeconds});
    group_->open_ring();
    EXPECT_FALSE(copies());
}

TEST(PeerObstacles, AreNamed) {
    cuda::set_device(0);
    PeerFacts own, neighbour;
    for (PeerFacts* const facts : {&own, &neighbour}) {
        std::strcpy(facts->node, "a");
        std::strcpy(facts->namespaces, "ipc:[1] pid:[2]");
    }
    cuda::describe_device(1).pci_bus_id.copy(neighbour.pci_bus_id, sizeof(neighbour.pci_bus_id) - 1);
    EXPECT_EQ(obstacle_between(own, neighbour), "");

    PeerFacts changed = neighbour;
    cuda::describe_device(0).pci_bus_id.copy(changed.pci_bus_id, sizeof(changed.pci_bus_id) - 1);
    EXPECT_EQ(obstacle_between(own, changed), "") << "two ranks share a GPU";
    std::strcpy(changed.pci_bus_id, "0000:ff:00.0");
    EXPECT_NE(obstacle_between(own, changed).find("--gpus-per-task"), std::string::npos);
    changed = neighbour;
    std::strcpy(changed.node, "b");
    EXPECT_NE(obstacle_between(own, changed).find("several nodes"), std::string::npos);
    changed = neighbour;
    std::strcpy(changed.namespaces, "ipc:[3] pid:[2]");
    EXPECT_NE(obstacle_between(own, changed).find("containers"), std::string::npos);
}

}  // namespace
}  // namespace argosy::comm

// A recorded world has the groups of a real one of its size, checks operations as the backends do, and counts
// what they move.
#include "comm/recording.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "comm/mesh.h"
#include "expect_error.h"

namespace argosy::comm {
namespace {

using layout::Axis;
using layout::AxisSet;
using layout::kDataAxes;
using layout::MeshShape;

at::Tensor without_data(int64_t num_elements, at::ScalarType type = at::kFloat) {
    return at::empty({num_elements}, at::TensorOptions(c10::kMeta).dtype(type));
}

TEST(RecordingCommunicator, HasTheGroupsOfTheMesh) {
    const MeshShape shape{{4, 2, 8, 2, 16}};
    for (const int rank : {0, 77, 511, shape.num_ranks() - 1}) {
        Recording recording;
        RecordingCommunicator world(rank, shape.num_ranks(), recording);
        Mesh mesh(shape, world);
        for (const AxisSet axes : {AxisSet(Axis::Pipeline), AxisSet(Axis::Tensor),
                                   AxisSet{Axis::Shard, Axis::Context}, kDataAxes}) {
            for (const int parts : {1, 2}) {
                const Communicator& group = mesh.group(axes, parts);
                const std::vector<int> members = shape.group(rank, axes, parts);
                EXPECT_EQ(group.size(), std::ssize(members));
                EXPECT_EQ(members[group.rank()], rank);
                EXPECT_EQ(group.name(), shape.used(axes).name());
                EXPECT_TRUE(group.device().is_meta());
            }
            EXPECT_EQ(mesh.group(axes).rank(), mesh.index(axes));
        }
    }
}

TEST(RecordingCommunicator, RefusesARankOutsideOfTheWorldOrOfTheGroup) {
    Recording recording;
    EXPECT_ERROR(RecordingCommunicator(4, 4, recording), RunError, "rank 4 of 4 ranks");
    const RecordingCommunicator world(1, 4, recording);
    const std::vector<int> others = {0, 2};
    EXPECT_ERROR(world.subgroup(others, "pp"), RunError, "rank 1 is not a member of its group pp");
}

TEST(RecordingCommunicator, CountsEqualOperationsAndShowsEachSubmissionInOrder) {
    std::vector<std::vector<OpKind>> seen;
    std::vector<int64_t> waited;
    Recording recording({.launched =
                             [&](const Recording::Launch& launch) {
                                 EXPECT_EQ(launch.number, std::ssize(seen));
                                 auto& kinds = seen.emplace_back();
                                 for (const RecordedOp& op : launch.ops) kinds.push_back(op.kind);
                             },
                         .waited = [&](int64_t number) { waited.push_back(number); }});
    RecordingCommunicator world(2, 4, recording);
    const Op gather{.kind = OpKind::AllGather, .out = without_data(40), .in = without_data(10)};
    const Op reduce{.kind = OpKind::ReduceScatter, .out = without_data(10), .in = without_data(40)};
    constexpr int kTimes = 1000;
    for (int i = 0; i < kTimes; ++i) world.run(std::vector<Op>{gather, reduce, gather});
    EXPECT_FALSE(world.submit(std::vector<Op>{}).active());
    world.run({.kind = OpKind::Send, .in = without_data(3, at::kBFloat16), .peer = 3});

    const auto of_world = [](OpKind kind, ElementType type, int64_t num_elements, int peer = -1) {
        return RecordedOp{"world", 2, 4, kind, type, num_elements, peer};
    };
    const std::map<RecordedOp, int64_t> expected = {
        {of_world(OpKind::AllGather, ElementType::Float32, 40), 2 * kTimes},
        {of_world(OpKind::ReduceScatter, ElementType::Float32, 40), kTimes},
        {of_world(OpKind::Send, ElementType::BFloat16, 3, 3), 1}};
    EXPECT_EQ(recording.counts(), expected);
    ASSERT_EQ(seen.size(), kTimes + 1);
    EXPECT_EQ(seen.front(), (std::vector{OpKind::AllGather, OpKind::ReduceScatter, OpKind::AllGather}));
    EXPECT_EQ(seen.back(), std::vector{OpKind::Send});
    std::vector<int64_t> all(seen.size());
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(waited, all);
    const int64_t gathered = 3 * 160 * 3 / 4 * kTimes;
    EXPECT_EQ(recording.bytes_by_group(),
              (std::map<std::string, MovedBytes>{{"world", {gathered + 6, gathered}}}));
}

TEST(RecordingCommunicator, KeepsTensorsUntilTheWaitAndLeavesHostTensorsAlone) {
    Recording recording;
    RecordingCommunicator world(0, 2, recording, c10::kCPU);
    at::Tensor values = at::full({4}, 7, at::kFloat);
    Pending pending = world.submit({.kind = OpKind::AllReduce, .out = values, .in = values});
    EXPECT_TRUE(pending.active());
    EXPECT_GT(values.use_count(), 1);
    pending.wait();
    EXPECT_EQ(values.use_count(), 1);
    EXPECT_TRUE(values.eq(7).all().item<bool>());
}

TEST(RecordingCommunicator, CountsTheCommunicatorsOfGpus) {
    Recording recording;
    RecordingCommunicator world(1, 8, recording);
    const auto expect = [&](int collectives, int messages_each_way) {
        EXPECT_EQ(recording.connections(),
                  (RecordedConnections{collectives, messages_each_way, messages_each_way}));
    };
    // 1. each kind once, whether it is opened or used first; those of host tensors not at all
    const at::Tensor host = at::full({4}, 7, at::kFloat), values = without_data(4);
    world.run({.kind = OpKind::AllReduce, .out = host, .in = host});
    expect(0, 0);
    for (int i = 0; i < 2; ++i) world.open_collectives(Collectives::Reductions);
    world.run({.kind = OpKind::AllReduce, .out = values, .in = values});
    expect(1, 0);
    world.run({.kind = OpKind::Broadcast, .out = values, .peer = 0});
    world.open_collectives(Collectives::All);
    expect(2, 0);
    // 2. a rank has two neighbours on a ring of four, two ranks have one, one rank has none
    Mesh mesh({{2, 4, 1, 1, 1}}, world);
    mesh.group(Axis::Pipeline).open_channels();
    expect(2, 1);
    mesh.group(Axis::Replicate).open_channels();
    mesh.group(Axis::Replicate).open_channels();
    expect(2, 3);
    mesh.group(Axis::Tensor).open_channels();
    mesh.group(Axis::Tensor).open_collectives(Collectives::All);
    expect(2, 3);
}

TEST(RecordingCommunicator, RecordsWhatAnAllToAllMovesBetweenRanks) {
    Recording recording;
    RecordingCommunicator world(1, 3, recording);
    world.run({.kind = OpKind::AllToAll,
               .out = without_data(9),
               .in = without_data(12),
               .parts = {.sent = {2, 7, 3}, .received = {0, 7, 2}, .total = 40}});
    const auto& [op, count] = *recording.counts().begin();
    EXPECT_EQ(count, 1);
    EXPECT_EQ(op.num_elements, 40);
    EXPECT_EQ(moved_bytes(op), (MovedBytes{4 * 5, 4 * 2}));
    EXPECT_EQ(recording.bytes_by_group(), (std::map<std::string, MovedBytes>{{"world", {20, 8}}}));
}

TEST(RecordingCommunicator, ChecksOperations) {
    Recording recording;
    RecordingCommunicator world(0, 2, recording);
    EXPECT_ERROR(world.run({.kind = OpKind::AllGather, .out = without_data(5), .in = without_data(2)}),
                 RunError, "5 elements gathered from 2 on 2 ranks");
    for (const int peer : {-1, 2}) {
        EXPECT_ERROR(world.run({.kind = OpKind::Send, .in = without_data(2), .peer = peer}), RunError,
                     "send with rank " + std::to_string(peer) + " of 2 ranks");
    }
    EXPECT_TRUE(recording.counts().empty());
}

// Every byte that one rank of a ring sends is received by another.
TEST(MovedBytes, OfARingAreSentAsOftenAsReceived) {
    constexpr int kSize = 5;
    for (const OpKind kind :
         {OpKind::AllGather, OpKind::ReduceScatter, OpKind::AllReduce, OpKind::Broadcast}) {
        int64_t sent = 0, received = 0;
        for (int rank = 0; rank < kSize; ++rank) {
            const MovedBytes own =
                moved_bytes({"dp", rank, kSize, kind, ElementType::Float32, 30, /*peer=*/3});
            sent += own.sent;
            received += own.received;
        }
        EXPECT_EQ(sent, received) << kind_name(kind);
        EXPECT_EQ(sent, (kind == OpKind::AllReduce ? 2 : 1) * (kSize - 1) * 120) << kind_name(kind);
    }
    EXPECT_EQ(moved_bytes({"dp", 3, kSize, OpKind::Broadcast, ElementType::Float32, 30, 3}),
              (MovedBytes{120, 0}));
    EXPECT_EQ(moved_bytes({"dp", 2, kSize, OpKind::Broadcast, ElementType::Float32, 30, 3}),
              (MovedBytes{0, 120}));
    EXPECT_EQ(moved_bytes({"dp", 0, 1, OpKind::AllReduce, ElementType::Float32, 30}), MovedBytes{});
    EXPECT_EQ(moved_bytes({"pp", 0, 2, OpKind::Receive, ElementType::BFloat16, 30, 1}), (MovedBytes{0, 60}));
}

}  // namespace
}  // namespace argosy::comm

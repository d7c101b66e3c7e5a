#include "layout/mesh_shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "layout/random_shape.h"

namespace argosy::layout {
namespace {

constexpr int kRounds = 200;

void expect_refused(const MeshRequest& request, int num_ranks, std::initializer_list<const char*> parts) {
    try {
        resolve(request, num_ranks);
        FAIL() << "accepted";
    } catch (const UserError& error) {
        const std::string message = error.what();
        for (const char* part : parts) {
            EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
        }
    }
}

TEST(Resolve, TakesTheRestForTheShardAxis) {
    EXPECT_EQ(resolve({.pipeline = 2, .tensor = 3}, 24).degrees, (std::array{2, 1, 4, 1, 3}));
    EXPECT_EQ(resolve({}, 1).degrees, (std::array{1, 1, 1, 1, 1}));
    EXPECT_EQ(resolve({2, 3, 1, 5, 7}, 210).degrees, (std::array{2, 3, 1, 5, 7}));
}

TEST(Resolve, NamesTheProductAndTheNumberOfRanks) {
    expect_refused({.replicate = 4, .shard = 1, .tensor = 3}, 16,
                   {"dp_replicate 4 x tp 3 = 12 ranks", "but the run has 16;", "[parallelism]",
                    "start 12 ranks (in a plan: --gpus 12)"});
    expect_refused({.shard = 1}, 3,
                   {"all degrees 1 = 1 rank, but the run has 3;", "start 1 rank (in a plan"});
}

TEST(Resolve, NamesTheDegreesThatDoNotDivide) {
    expect_refused({.pipeline = 2, .tensor = 3}, 16,
                   {"pp 2 x tp 3 takes a multiple of 6 ranks, but the run has 16;", "start a multiple of 6"});
}

TEST(Resolve, NamesTheKeyOfADegreeBelowOne) {
    expect_refused({.tensor = 0}, 4, {"parallelism.tensor_parallel_degree is 0", "at least 1"});
    expect_refused({.pipeline = -1}, 4, {"parallelism.pipeline_parallel_degree is -1"});
    expect_refused({.replicate = -3}, 4, {"parallelism.data_parallel_replicate_degree is -3"});
    expect_refused({.context = 0}, 4, {"parallelism.context_parallel_degree is 0"});
    expect_refused({.shard = -2}, 4, {"parallelism.data_parallel_shard_degree is -2", "or -1"});
}

TEST(Resolve, RefusesProductsThatNoIntegerHolds) {
    expect_refused({.pipeline = 65536, .tensor = 65536}, 4,
                   {"pp 65536 x tp 65536 takes a multiple of 4294967296 ranks", "but the run has 4;"});
    expect_refused({.pipeline = 65536, .shard = 65537, .tensor = 65536}, 65536, {"but the run has 65536;"});
}

TEST(Resolve, DividesExpertsOverTheNearestRanks) {
    const auto groups = [](int expert, int context = 2) {
        const MeshShape shape = resolve({.replicate = 2,
                                         .shard = 4,
                                         .context = context,
                                         .tensor = 3,
                                         .expert = expert,
                                         .num_experts = 48},
                                        24 * context);
        EXPECT_EQ(shape.degree(shape.expert_axes), expert);
        return shape.degree(shape.expert_axes) == 1 ? "" : shape.used(shape.expert_axes).name();
    };
    EXPECT_EQ(groups(1), "");
    EXPECT_EQ(groups(3), "tp");
    EXPECT_EQ(groups(3, /*context=*/1), "tp");
    EXPECT_EQ(groups(6), "cp x tp");
    EXPECT_EQ(groups(12), "dp_shard inner x cp x tp");
    EXPECT_EQ(groups(24), "dp_shard x cp x tp");
    EXPECT_EQ(groups(6, /*context=*/1), "dp_shard inner x tp");
    EXPECT_EQ(resolve({.shard = 4, .tensor = 2, .expert = 4, .num_experts = 8}, 8).name(),
              "dp_shard 4 x tp 2, ep 4");
}

TEST(Resolve, NamesTheNearestDegreesThatMeshAndExpertsAllow) {
    const MeshRequest mesh = {.shard = 12, .tensor = 2};
    const auto expect_nearest = [&](int expert, int64_t num_experts, const char* nearest) {
        MeshRequest request = mesh;
        request.expert = expert;
        request.num_experts = num_experts;
        expect_refused(
            request, 24,
            {"parallelism.expert_parallel_degree is ", "dp_shard 12 x tp 2 and the model's ", nearest,
             "(1, tp, cp x tp, or cp x tp x a divisor of dp_shard, and a divisor of the"});
    };
    expect_nearest(16, 16, "16 experts allow: 8 (");
    expect_nearest(6, 16, "16 experts allow: 4, 8 (");
    expect_nearest(3, 12, "12 experts allow: 2, 4 (");
    expect_nearest(24, 12, "12 experts allow: 12 (");
    expect_nearest(2, 9, "9 experts allow: 1 (");
    expect_nearest(0, 8, "8 experts allow: 1 (");
    expect_refused({.expert = 2}, 2,
                   {"parallelism.expert_parallel_degree is 2, but the model has no experts"});
}

// 64 GPUs on 8 nodes: experts are divided inside a node, and their rows over the nodes.
TEST(MeshShape, HasAnInnerPartOfTheShardAxis) {
    const MeshShape shape = resolve({.expert = 8, .num_experts = 128}, 64);
    EXPECT_EQ(shape.group(13, shape.expert_axes), (std::vector{8, 9, 10, 11, 12, 13, 14, 15}));
    EXPECT_EQ(shape.group(13, kOuterShards), (std::vector{5, 13, 21, 29, 37, 45, 53, 61}));
    EXPECT_EQ(shape.index(shape.coordinates(13), kOuterShards), 1);
    EXPECT_EQ(shape.index(shape.coordinates(13), kInnerShards), 5);
    EXPECT_EQ(shape.used(shape.expert_axes), kInnerShards);
    EXPECT_EQ(shape.used(kShards).name(), "dp_shard");
    for (const int inner : {1, 4}) {
        const MeshShape whole{.degrees = {1, 1, 4, 1, 2}, .inner_shards = inner};
        EXPECT_EQ(whole.used({kOuterShards, Axis::Tensor}).name(), inner == 1 ? "dp_shard x tp" : "tp");
        EXPECT_EQ(whole.used(inner == 1 ? kOuterShards : kInnerShards), AxisSet(Axis::Shard));
    }
}

TEST(AxisSet, NamesItsAxesInOrder) {
    EXPECT_EQ(kShards.name(), "dp_shard x cp");
    EXPECT_EQ(AxisSet(Axis::Pipeline).name(), "pp");
    EXPECT_EQ((AxisSet{Axis::Tensor, Axis::Replicate}).name(), "dp_replicate x tp");
    EXPECT_EQ((AxisSet{Axis::Tensor, kInnerShards}).name(), "dp_shard inner x tp");
    EXPECT_EQ((AxisSet{Axis::Pipeline, kOuterShards}).name(), "pp x dp_shard outer");
}

TEST(MeshShape, NamesTheAxesInUse) {
    const MeshShape shape{{1, 2, 4, 1, 1}};
    EXPECT_EQ(shape.used(kShards), AxisSet(Axis::Shard));
    EXPECT_EQ(shape.used(kDataAxes), kDataAxes);
    EXPECT_EQ(shape.used(Axis::Tensor), AxisSet(Axis::Tensor)) << "none is in use: all of them";
    EXPECT_EQ(shape.name(), "dp_replicate 2 x dp_shard 4");
    EXPECT_EQ(MeshShape{}.name(), "one rank");
}

TEST(Coordinates, TensorNeighboursAreNeighboursAndPipelineStagesFarthest) {
    const MeshShape shape{{2, 2, 2, 2, 2}};
    EXPECT_EQ(shape.group(0, Axis::Tensor), (std::vector{0, 1}));
    EXPECT_EQ(shape.group(0, Axis::Context), (std::vector{0, 2}));
    EXPECT_EQ(shape.group(0, Axis::Shard), (std::vector{0, 4}));
    EXPECT_EQ(shape.group(0, Axis::Replicate), (std::vector{0, 8}));
    EXPECT_EQ(shape.group(0, Axis::Pipeline), (std::vector{0, 16}));
    EXPECT_EQ(shape.group(13, {Axis::Shard, Axis::Context}), (std::vector{9, 11, 13, 15}));
}

TEST(Coordinates, RoundTrip) {
    std::mt19937 random(1);
    for (int round = 0; round < kRounds; ++round) {
        const MeshShape shape = random_shape(random);
        std::set<Coordinates> seen;
        for (int rank = 0; rank < shape.num_ranks(); ++rank) {
            const Coordinates coordinates = shape.coordinates(rank);
            EXPECT_EQ(shape.rank(coordinates), rank);
            for (int axis = 0; axis < kNumAxes; ++axis) {
                EXPECT_GE(coordinates[axis], 0);
                EXPECT_LT(coordinates[axis], shape.degrees[axis]);
            }
            seen.insert(coordinates);
        }
        EXPECT_EQ(static_cast<int>(seen.size()), shape.num_ranks());
    }
}

TEST(Group, IsTheRanksThatDifferOnlyOnItsAxes) {
    std::mt19937 random(2);
    for (int round = 0; round < kRounds; ++round) {
        const MeshShape shape = random_shape(random);
        const AxisSet axes = random_axes(random);
        const int rank = static_cast<int>(random() % shape.num_ranks());
        const Coordinates own = shape.coordinates(rank);
        const std::vector<int> members = shape.group(rank, axes);
        ASSERT_EQ(static_cast<int>(members.size()), shape.degree(axes));
        EXPECT_TRUE(std::is_sorted(members.begin(), members.end()));
        for (int i = 0; i < static_cast<int>(members.size()); ++i) {
            const Coordinates other = shape.coordinates(members[i]);
            EXPECT_EQ(shape.index(other, axes), i) << "a member's number in its group is its index";
            for (const AxisSet part : kAxisParts)
                EXPECT_TRUE(axes.has(part) || shape.index(other, part) == shape.index(own, part));
        }
    }
}

TEST(Group, OfPartsCutsTheLastAxisIntoEqualBlocks) {
    std::mt19937 random(3);
    for (int round = 0; round < kRounds; ++round) {
        const MeshShape shape = random_shape(random);
        const AxisSet axes = random_axes(random);
        int last = kNumAxes - 1;
        while (last > 0 && !axes.has(static_cast<Axis>(last))) --last;
        const int parts = random_divisor(random, shape.degrees[last]), size = shape.degrees[last] / parts;
        const int rank = static_cast<int>(random() % shape.num_ranks());
        const auto block = [&](int member) { return shape.coordinates(member)[last] / size; };
        std::vector<int> expected = shape.group(rank, axes);
        std::erase_if(expected, [&](int member) { return block(member) != block(rank); });
        EXPECT_EQ(shape.group(rank, axes, parts), expected);
    }
}

TEST(Group, RefusesPartsThatDoNotDivide) {
    EXPECT_THROW((MeshShape{{1, 1, 1, 1, 4}}.group(0, Axis::Tensor, 3)), RunError);
}

}  // namespace
}  // namespace argosy::layout

#include "layout/param_spec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "base/error.h"
#include "layout/random_shape.h"

namespace argosy::layout {
namespace {

TEST(Chunk, IsCeilSizedWithTheLastOnesShorterOrEmpty) {
    const auto sizes = [](int64_t n, int parts) {
        std::vector<int64_t> found;
        for (int i = 0; i < parts; ++i) found.push_back(chunk(n, parts, i).size);
        return found;
    };
    EXPECT_EQ(sizes(8, 4), (std::vector<int64_t>{2, 2, 2, 2}));
    EXPECT_EQ(sizes(7, 4), (std::vector<int64_t>{2, 2, 2, 1}));
    EXPECT_EQ(sizes(5, 4), (std::vector<int64_t>{2, 2, 1, 0}));
    EXPECT_EQ(sizes(1, 3), (std::vector<int64_t>{1, 0, 0}));
    EXPECT_EQ(sizes(0, 2), (std::vector<int64_t>{0, 0}));
    EXPECT_EQ(chunk(5, 4, 3).begin, 5) << "an empty chunk still lies inside";
}

TEST(Chunk, ChunksFollowEachOther) {
    for (int64_t n = 0; n < 40; ++n) {
        for (int parts = 1; parts < 12; ++parts) {
            int64_t next = 0;
            for (int i = 0; i < parts; ++i) {
                const Range range = chunk(n, parts, i);
                EXPECT_EQ(range.begin, next);
                next += range.size;
            }
            EXPECT_EQ(next, n);
        }
    }
}

TEST(SlabOf, CutsTensorFirstThenShard) {
    const MeshShape mesh{{1, 1, 2, 1, 2}};
    const ParamSpec spec{.shape = {7, 3}, .cuts = {{Axis::Tensor, 0, 2}, {kShards, 0, 2}}};
    const auto at = [&](int shard, int tensor, int num_cuts = -1) {
        return slab_of(spec, mesh, {0, 0, shard, 0, tensor}, num_cuts);
    };
    // The tensor axis gives rows 0-3 and 4-6; the shard axis cuts these into 2 + 2 and 2 + 1 rows.
    EXPECT_EQ(at(0, 0), (Slab{{0, 0}, {2, 3}}));
    EXPECT_EQ(at(1, 0), (Slab{{2, 0}, {2, 3}}));
    EXPECT_EQ(at(0, 1), (Slab{{4, 0}, {2, 3}}));
    EXPECT_EQ(at(1, 1), (Slab{{6, 0}, {1, 3}}));
    EXPECT_EQ(at(1, 1, 1), (Slab{{4, 0}, {3, 3}})) << "after the first cut alone";
    EXPECT_EQ(at(1, 1, 0), (Slab{{0, 0}, {7, 3}})) << "before any";
}

TEST(SlabOf, CutsTwoDims) {
    const MeshShape mesh{{1, 1, 2, 1, 3}};
    const ParamSpec spec{.shape = {5, 7}, .cuts = {{Axis::Tensor, 1, 3}, {kShards, 0, 2}}};
    EXPECT_EQ(slab_of(spec, mesh, {0, 0, 0, 0, 1}), (Slab{{0, 3}, {3, 3}}));
    EXPECT_EQ(slab_of(spec, mesh, {0, 0, 1, 0, 2}), (Slab{{3, 6}, {2, 1}}));
}

TEST(SlabOf, FewerPartsThanRanksAreHeldByNeighbours) {
    const MeshShape mesh{{1, 1, 1, 1, 4}};
    const ParamSpec spec{.shape = {6}, .cuts = {{Axis::Tensor, 0, 2}}};
    std::vector<int64_t> offsets, owners;
    for (int tensor = 0; tensor < 4; ++tensor) {
        offsets.push_back(slab_of(spec, mesh, {0, 0, 0, 0, tensor}).offset[0]);
        if (owns(spec, mesh, {0, 0, 0, 0, tensor})) owners.push_back(tensor);
    }
    EXPECT_EQ(offsets, (std::vector<int64_t>{0, 0, 3, 3}));
    EXPECT_EQ(owners, (std::vector<int64_t>{0, 2}));
}

TEST(Owns, OneReplicaAndTheFirstStageOfATiedTable) {
    const MeshShape mesh{{3, 2, 2, 1, 1}};
    const ParamSpec tied{.shape = {4, 4}, .pipeline_ranks = {1, 2}, .cuts = {{kShards, 0, 2}}};
    std::vector<Coordinates> owners;
    for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
        if (owns(tied, mesh, mesh.coordinates(rank))) owners.push_back(mesh.coordinates(rank));
    }
    EXPECT_EQ(owners, (std::vector<Coordinates>{{1, 0, 0, 0, 0}, {1, 0, 1, 0, 0}}));
}

ParamSpec random_spec(std::mt19937& random, const MeshShape& mesh) {
    ParamSpec spec;
    const int num_dims = 1 + static_cast<int>(random() % 2);
    for (int dim = 0; dim < num_dims; ++dim) spec.shape.push_back(1 + static_cast<int64_t>(random() % 13));
    const auto cut = [&](AxisSet axes, int dim) {
        if (random() % 4 != 0) spec.cuts.push_back({axes, dim, random_divisor(random, mesh.degree(axes))});
    };
    const bool of_experts = random() % 3 == 0;
    cut(of_experts ? AxisSet{kInnerShards, Axis::Context, Axis::Tensor} : Axis::Tensor,
        static_cast<int>(random() % num_dims));
    cut(of_experts ? kOuterShards : kShards, 0);
    const int num_ranks = mesh.degree(Axis::Pipeline);
    spec.pipeline_ranks = {static_cast<int>(random() % num_ranks)};
    if (num_ranks > 1 && random() % 3 == 0) spec.pipeline_ranks = {0, num_ranks - 1};  // a tied table
    return spec;
}

/// Adds one to every element of the slab in a row-major array of the tensor's counts.
void count_in(const Slab& slab, const std::vector<int64_t>& shape, std::vector<int>& counts) {
    const bool flat = shape.size() == 1;
    const int64_t columns = flat ? 1 : shape[1];
    const Range column = flat ? Range{0, 1} : Range{slab.offset[1], slab.size[1]};
    for (int64_t i = 0; i < slab.size[0]; ++i) {
        for (int64_t j = 0; j < column.size; ++j) ++counts[(slab.offset[0] + i) * columns + column.begin + j];
    }
}

TEST(Layout, OwnersTileEveryTensorExactlyOnce) {
    std::mt19937 random(4);
    for (int round = 0; round < 500; ++round) {
        const MeshShape mesh = random_shape(random);
        const ParamSpec spec = random_spec(random, mesh);
        std::vector<int> counts(num_elements(spec.shape), 0);
        for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
            const Coordinates coordinates = mesh.coordinates(rank);
            if (owns(spec, mesh, coordinates)) count_in(slab_of(spec, mesh, coordinates), spec.shape, counts);
        }
        EXPECT_EQ(counts, std::vector<int>(counts.size(), 1)) << "round " << round;
    }
}

TEST(Layout, EveryReplicaHoldsTheWholeTensor) {
    std::mt19937 random(5);
    for (int round = 0; round < 500; ++round) {
        const MeshShape mesh = random_shape(random);
        const ParamSpec spec = random_spec(random, mesh);
        const int replica = static_cast<int>(random() % mesh.degree(Axis::Replicate));
        std::vector<int> counts(num_elements(spec.shape), 0);
        for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
            const Coordinates coordinates = mesh.coordinates(rank);
            if (coordinates[0] == spec.pipeline_ranks.back() && coordinates[1] == replica) {
                count_in(slab_of(spec, mesh, coordinates), spec.shape, counts);
            }
        }
        int copies = mesh.degree({Axis::Shard, Axis::Context, Axis::Tensor});
        for (const Cut& cut : spec.cuts) copies /= cut.parts;
        EXPECT_EQ(counts, std::vector<int>(counts.size(), copies)) << "round " << round;
    }
}

/// The expected shares come from comparing every pair of ranks that hold the tensor.
TEST(Layout, SharesNumberTheRanksWithTheSameSlab) {
    std::mt19937 random(6);
    for (int round = 0; round < 200; ++round) {
        const MeshShape mesh = random_shape(random);
        const ParamSpec spec = random_spec(random, mesh);
        std::vector<int> holders;
        for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
            const bool on_rank = std::ranges::any_of(
                spec.pipeline_ranks, [&](int own) { return own == mesh.coordinates(rank)[0]; });
            EXPECT_EQ(holds(spec, mesh.coordinates(rank)), on_rank);
            if (on_rank) holders.push_back(rank);
        }
        using OffsetAndSize = std::pair<std::vector<int64_t>, std::vector<int64_t>>;
        std::map<OffsetAndSize, std::set<int>> indices;
        std::map<OffsetAndSize, int> counts;
        for (const int rank : holders) {
            const Slab slab = slab_of(spec, mesh, mesh.coordinates(rank));
            if (slab.num_elements() == 0) continue;  // several such slabs look the same
            const Share share = share_of(spec, mesh, mesh.coordinates(rank));
            EXPECT_EQ(share.index == 0, owns(spec, mesh, mesh.coordinates(rank)));
            const OffsetAndSize own{slab.offset, slab.size};
            EXPECT_TRUE(indices[own].insert(share.index).second) << "round " << round;
            counts[own] = share.count;
        }
        for (const auto& [own, seen] : indices) {
            EXPECT_EQ(std::ssize(seen), counts[own]) << "round " << round;
            EXPECT_EQ(*seen.begin(), 0);
            EXPECT_EQ(*seen.rbegin(), counts[own] - 1);
        }
    }
}

TEST(RowsOf, SayWhereASlabsElementsLie) {
    const auto elements = [](const std::vector<int64_t>& shape, const Slab& slab) {
        const SlabRows rows = rows_of(shape, slab);
        std::vector<int64_t> found;
        for (int64_t i = 0; i < slab.num_elements(); ++i) found.push_back(rows.element(i));
        return found;
    };
    EXPECT_EQ(elements({9}, {{4}, {3}}), (std::vector<int64_t>{4, 5, 6}));
    EXPECT_EQ(elements({4, 5}, {{1, 0}, {2, 5}}), (std::vector<int64_t>{5, 6, 7, 8, 9, 10, 11, 12, 13, 14}));
    EXPECT_EQ(elements({4, 5}, {{1, 3}, {3, 2}}), (std::vector<int64_t>{8, 9, 13, 14, 18, 19}));
    EXPECT_EQ(elements({2, 3, 2}, {{1, 1, 0}, {1, 2, 2}}), (std::vector<int64_t>{8, 9, 10, 11}));
    EXPECT_EQ(elements({4, 5}, {{4, 0}, {0, 5}}), std::vector<int64_t>());
    EXPECT_THROW(rows_of({2, 3, 2}, {{0, 0, 1}, {2, 3, 1}}), RunError);
}

}  // namespace
}  // namespace argosy::layout

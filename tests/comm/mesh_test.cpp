// The communicators of a mesh have the ranks that MeshShape computes.
#include "comm/mesh.h"
#include "comm/values.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/world.h"

namespace argosy::comm {
namespace {

using ::argosy::testing::world;
using layout::Axis;
using layout::AxisSet;
using layout::kDataAxes;
using layout::MeshShape;

TEST(Mesh, GroupsJoinTheRanksOfTheShape) {
    const int half = world().size() > 1 ? world().size() / 2 : 1, rest = world().size() / half;
    for (const auto& degrees :
         {std::array{rest, 1, half, 1, 1}, {1, rest, 1, half, 1}, {1, 1, rest, 1, half}}) {
        const MeshShape shape{degrees};
        Mesh mesh(shape, world());
        for (const AxisSet axes : {AxisSet(Axis::Pipeline), AxisSet(Axis::Tensor),
                                   AxisSet{Axis::Shard, Axis::Context}, kDataAxes}) {
            const Axis last = axes.has(Axis::Context) ? Axis::Context : Axis::Shard;
            for (const int parts : {1, mesh.degree(axes.has(last) ? last : axes)}) {
                Communicator& group = mesh.group(axes, parts);
                EXPECT_EQ(all_gather(group, world().rank()), shape.group(world().rank(), axes, parts));
                EXPECT_EQ(group.name(), shape.used(axes).name());
                EXPECT_EQ(&group, &mesh.group(axes, parts)) << "made twice";
            }
            EXPECT_EQ(mesh.group(axes).rank(), mesh.index(axes));
        }
    }
}

TEST(Mesh, AxesOfOneRankDoNotCount) {
    if (world().size() == 1) GTEST_SKIP() << "a group of one rank connects nothing";
    Mesh mesh(MeshShape{{1, 1, world().size(), 1, 1}}, world());
    Communicator& shards = mesh.group(Axis::Shard);
    EXPECT_EQ(&shards, &mesh.group({Axis::Shard, Axis::Context}));
    EXPECT_EQ(&shards, &mesh.group({Axis::Shard, Axis::Tensor}));
    EXPECT_NE(&shards, &mesh.group(Axis::Shard, /*parts=*/1, /*number=*/1));
}

TEST(Mesh, GroupsOfAPartOfTheShardAxisAreThoseOfTheAxisIfTheyHaveItsRanks) {
    const int size = world().size();
    if (size == 1) GTEST_SKIP() << "a group of one rank connects nothing";
    for (int inner = 1; inner <= size; ++inner) {
        if (size % inner != 0) continue;
        const MeshShape shape{.degrees = {1, 1, size, 1, 1}, .inner_shards = inner};
        Mesh mesh(shape, world());
        for (const AxisSet part : {layout::kInnerShards, layout::kOuterShards}) {
            Communicator& group = mesh.group(part);
            EXPECT_EQ(all_gather(group, world().rank()), shape.group(world().rank(), part));
            EXPECT_EQ(&group == &mesh.group(Axis::Shard), group.size() == size);
            EXPECT_EQ(group.name() == "dp_shard", group.size() == size);
        }
    }
}

TEST(Mesh, RefusesAShapeOfOtherSize) {
    EXPECT_THROW(Mesh(MeshShape{{1, 1, world().size() + 1, 1, 1}}, world()), RunError);
}

}  // namespace
}  // namespace argosy::comm

// The communicators of a mesh have the ranks that MeshShape computes.
#include "comm/mesh.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/world.h"

namespace argosy::comm {
namespace {

using ::argosy::testing::world;
using layout::Axis;
using layout::AxisSet;
using layout::kDataAxes;
using layout::kShardAxes;
using layout::MeshShape;

std::vector<int> members_by_gathering(Communicator& group) {
    const at::Tensor all = at::zeros({group.size()}, at::kLong);
    group.run({OpKind::AllGather, all, at::full({1}, world().rank(), at::kLong)});
    const auto* first = all.const_data_ptr<int64_t>();
    return {first, first + all.numel()};
}

TEST(Mesh, GroupsJoinTheRanksOfTheShape) {
    const int half = world().size() > 1 ? world().size() / 2 : 1, rest = world().size() / half;
    for (const auto& degrees :
         {std::array{rest, 1, half, 1, 1}, {1, rest, 1, half, 1}, {1, 1, rest, 1, half}}) {
        const MeshShape shape{degrees};
        Mesh mesh(shape, world());
        for (const AxisSet axes : {AxisSet(Axis::Pipeline), AxisSet(Axis::Tensor), kShardAxes, kDataAxes}) {
            const Axis last = axes.has(Axis::Context) ? Axis::Context : Axis::Shard;
            for (const int parts : {1, mesh.degree(axes.has(last) ? last : axes)}) {
                Communicator& group = mesh.group(axes, parts);
                EXPECT_EQ(members_by_gathering(group), shape.group(world().rank(), axes, parts));
                EXPECT_EQ(group.name(), shape.used(axes).name());
                EXPECT_EQ(&group, &mesh.group(axes, parts)) << "made twice";
            }
            EXPECT_EQ(mesh.group(axes).rank(), mesh.index(axes));
        }
    }
}

TEST(Mesh, RefusesAShapeOfOtherSize) {
    EXPECT_THROW(Mesh(MeshShape{{1, 1, world().size() + 1, 1, 1}}, world()), RunError);
}

}  // namespace
}  // namespace argosy::comm

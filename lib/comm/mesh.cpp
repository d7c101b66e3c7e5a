#include "comm/mesh.h"

#include "base/error.h"

namespace argosy::comm {

Mesh::Mesh(const layout::MeshShape& shape, Communicator& world)
    : shape_(shape), world_(world), coordinates_(shape.coordinates(world.rank())) {
    ARGOSY_CHECK(shape.num_ranks() == world.size(), "{} ranks on a mesh of {}", world.size(),
                 shape.num_ranks());
}

Communicator& Mesh::group(layout::AxisSet axes, int parts) {
    auto& group = groups_[{axes, parts}];
    if (!group) group = world_.subgroup(shape_.group(world_.rank(), axes, parts), shape_.used(axes).name());
    return *group;
}

}  // namespace argosy::comm

#include "mesh/mesh.h"

#include "base/error.h"

namespace argosy::mesh {

Mesh::Mesh(const MeshShape& shape, comm::Communicator& world)
    : shape_(shape), world_(world), coordinates_(shape.coordinates(world.rank())) {
    ARGOSY_CHECK(shape.num_ranks() == world.size(), "{} ranks on a mesh of {}", world.size(),
                 shape.num_ranks());
}

comm::Communicator& Mesh::group(AxisSet axes, int parts) {
    auto& group = groups_[{axes, parts}];
    if (!group) group = world_.subgroup(shape_.group(world_.rank(), axes, parts), shape_.used(axes).name());
    return *group;
}

}  // namespace argosy::mesh

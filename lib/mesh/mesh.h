// This rank's coordinates on the mesh, and its communicators: one for each set of axes and number of parts,
// made at the first call of group(). The Mesh owns these communicators; the caller owns the world.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "comm/communicator.h"
#include "mesh/mesh_shape.h"

namespace argosy::mesh {

class Mesh {
  public:
    /// REQUIRES: world outlives the mesh; shape.num_ranks() == world.size().
    Mesh(const MeshShape& shape, comm::Communicator& world);

    const MeshShape& shape() const { return shape_; }
    const Coordinates& coordinates() const { return coordinates_; }
    int coordinate(Axis axis) const { return coordinates_[static_cast<int>(axis)]; }
    int degree(AxisSet axes) const { return shape_.degree(axes); }
    int index(AxisSet axes) const { return shape_.index(coordinates_, axes); }
    comm::Communicator& world() const { return world_; }
    /// The device on which this rank computes.
    c10::Device device() const { return world_.device(); }

    /// Returns the group of ranks that differ from this rank only on `axes` (see MeshShape::group).
    /// COLLECTIVE over that group at its first call for these arguments.
    comm::Communicator& group(AxisSet axes, int parts = 1);

    /// Visits every communicator made so far; for accounting.
    template <class Visit>
    void for_each_group(Visit visit) const {
        for (const auto& [key, group] : groups_) visit(*group);
    }

  private:
    MeshShape shape_;
    comm::Communicator& world_;
    Coordinates coordinates_;
    std::map<std::pair<AxisSet, int>, std::unique_ptr<comm::Communicator>> groups_;
};

}  // namespace argosy::mesh

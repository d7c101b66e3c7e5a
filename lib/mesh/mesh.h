// This rank's place on the mesh and its communicators: one per set of axes, made when first asked for.
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
    /// Where this rank computes.
    c10::Device device() const { return world_.device(); }

    /// COLLECTIVE over the group at its first call: the ranks that differ only on `axes` (see
    /// MeshShape::group).
    comm::Communicator& group(AxisSet axes, int parts = 1);

    /// Every communicator made so far; for accounting.
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

// This rank's coordinates on the mesh, and its communicators. group() makes a communicator when it is first
// called for a set of axes and a number of parts. The Mesh owns these communicators; the caller owns the
// world.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "base/error.h"
#include "comm/communicator.h"
#include "layout/mesh_shape.h"

namespace argosy::comm {

class Mesh {
  public:
    static constexpr int kExperts = 3;  // the number of the group over which rows go to their experts

    /// REQUIRES: world outlives the mesh; shape.num_ranks() == world.size().
    Mesh(const layout::MeshShape& shape, Communicator& world)
        : shape_(shape), world_(world), coordinates_(shape.coordinates(world.rank())) {
        ARGOSY_CHECK(shape.num_ranks() == world.size(), "{} ranks on a mesh of {}", world.size(),
                     shape.num_ranks());
    }

    const layout::MeshShape& shape() const { return shape_; }
    const layout::Coordinates& coordinates() const { return coordinates_; }
    int coordinate(layout::Axis axis) const { return coordinates_[static_cast<int>(axis)]; }
    int degree(layout::AxisSet axes) const { return shape_.degree(axes); }
    int index(layout::AxisSet axes) const { return shape_.index(coordinates_, axes); }
    Communicator& world() const { return world_; }
    /// The device on which this rank computes.
    c10::Device device() const { return world_.device(); }

    /// Returns the group of ranks that differ from this rank only on `axes` (see MeshShape::group).
    /// Axes of one rank do not count: a group is one for all axes with the same ranks. Groups of the same
    /// ranks with different numbers are independent: the messages of one of them do not wait for those of
    /// another one. COLLECTIVE over that group at its first call for these arguments.
    Communicator& group(layout::AxisSet axes, int parts = 1, int number = 0) {
        auto& group = groups_[{shape_.used(axes), parts, number}];
        if (!group)
            group = world_.subgroup(shape_.group(world_.rank(), axes, parts), shape_.used(axes).name());
        return *group;
    }

    /// Visits the groups of more than one rank that were made so far, the world included, with their numbers.
    template <class Visit>
    void for_each_shared_group(Visit visit) const {
        if (world_.size() > 1) visit(world_, 0);
        for (const auto& [key, group] : groups_) {
            if (group->size() > 1) visit(*group, std::get<2>(key));
        }
    }

  private:
    layout::MeshShape shape_;
    Communicator& world_;
    layout::Coordinates coordinates_;
    std::map<std::tuple<layout::AxisSet, int, int>, std::unique_ptr<Communicator>> groups_;
};

}  // namespace argosy::comm

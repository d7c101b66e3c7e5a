// The arrangement of ranks as a grid with five named axes; pure arithmetic, no communication. The coordinates
// are the digits of the rank number in mixed radix. The pipeline coordinate changes slowest and the tensor
// coordinate fastest. The ranks of a tensor group are therefore consecutive, normally on one node; context
// groups are the next nearest, then shard groups.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace argosy::layout {

enum class Axis { Pipeline, Replicate, Shard, Context, Tensor };
inline constexpr int kNumAxes = 5;

class AxisSet {
  public:
    constexpr AxisSet() = default;
    constexpr AxisSet(Axis axis) : bits_(1U << static_cast<int>(axis)) {}
    constexpr AxisSet(std::initializer_list<Axis> axes) {
        for (const Axis axis : axes) add(axis);
    }
    constexpr bool empty() const { return bits_ == 0; }
    constexpr void add(Axis axis) { bits_ |= 1U << static_cast<int>(axis); }
    constexpr void add(AxisSet axes) { bits_ |= axes.bits_; }
    constexpr AxisSet without(AxisSet axes) const {
        AxisSet rest = *this;
        rest.bits_ &= ~axes.bits_;
        return rest;
    }
    constexpr bool has(Axis axis) const { return bits_ >> static_cast<int>(axis) & 1; }
    constexpr auto operator<=>(const AxisSet&) const = default;
    std::string name() const;  // "dp_shard x cp"; the names are pp, dp_replicate, dp_shard, cp, tp

  private:
    unsigned bits_ = 0;
};

/// Ranks with different coordinates on these axes read different data.
inline constexpr AxisSet kDataAxes = {Axis::Replicate, Axis::Shard};

using Coordinates = std::array<int, kNumAxes>;

struct MeshShape {
    std::array<int, kNumAxes> degrees = {1, 1, 1, 1, 1};
    AxisSet expert_axes = {};  // they divide the experts of a model; none: each rank has all of them

    int degree(Axis axis) const { return degrees[static_cast<int>(axis)]; }
    int degree(AxisSet axes) const;
    AxisSet used(AxisSet axes) const;  // those of `axes` with more than one rank; all of `axes` if none has
    int num_ranks() const;
    std::string name() const;  // "pp 2 x tp 4"; "one rank"

    Coordinates coordinates(int rank) const;
    int rank(const Coordinates& coordinates) const;

    /// The number of the rank at `coordinates` among the ranks that differ from it only on `axes`:
    /// 0 .. degree(axes)-1.
    int index(const Coordinates& coordinates, AxisSet axes) const;

    /// The ranks, ascending, that differ from `rank` only on `axes`, `rank` included. The last of these axes
    /// is cut into `parts` equal blocks of neighbours; only ranks in the block of `rank` are returned.
    /// REQUIRES: parts divides the degree of the last axis.
    std::vector<int> group(int rank, AxisSet axes, int parts = 1) const;
};

/// The degrees in a configuration; shard = -1 means all ranks that the other axes leave.
struct MeshRequest {
    int pipeline = 1, replicate = 1, shard = -1, context = 1, tensor = 1, expert = 1;
};

/// Returns the degrees, with the remaining ranks in place of shard = -1. Experts are divided by the nearest
/// ranks: those of the tensor axis, with the context axis, or with the shard axis, too. Throws UserError,
/// which says what to change, if a degree is invalid or the product of the degrees is not `num_ranks`.
MeshShape resolve(const MeshRequest& request, int num_ranks);

}  // namespace argosy::layout

// The arrangement of ranks as a grid with five named axes; pure arithmetic, no communication. The coordinates
// are the digits of the rank number in mixed radix. The pipeline coordinate changes slowest and the tensor
// coordinate fastest. The ranks of a tensor group are therefore consecutive, normally on one node; context
// groups are the next nearest, then shard groups. The shard axis is outer x inner: where its inner part
// divides experts, its outer part shards them. Everything else takes the axis as one.
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
    constexpr AxisSet(Axis axis)
        : bits_(axis < Axis::Shard    ? 1U << static_cast<int>(axis)
                : axis == Axis::Shard ? kOuter | kInner
                                      : kInner << (static_cast<int>(axis) - static_cast<int>(Axis::Shard))) {}
    constexpr AxisSet(std::initializer_list<AxisSet> axes) {
        for (const AxisSet each : axes) add(each);
    }
    static constexpr AxisSet outer_shards() { return AxisSet(kOuter); }
    static constexpr AxisSet inner_shards() { return AxisSet(kInner); }
    constexpr bool empty() const { return bits_ == 0; }
    constexpr void add(AxisSet axes) { bits_ |= axes.bits_; }
    constexpr AxisSet without(AxisSet axes) const {
        AxisSet rest = *this;
        rest.bits_ &= ~axes.bits_;
        return rest;
    }
    constexpr bool has(AxisSet axes) const { return axes.without(*this).empty(); }  // all of `axes`
    constexpr auto operator<=>(const AxisSet&) const = default;
    /// "dp_shard x cp"; the names are pp, dp_replicate, dp_shard, cp, tp, and "dp_shard outer" and "dp_shard
    /// inner" of a part.
    std::string name() const;

  private:
    static constexpr unsigned kOuter = 1U << static_cast<int>(Axis::Shard), kInner = kOuter << 1;
    explicit constexpr AxisSet(unsigned bits) : bits_(bits) {}

    unsigned bits_ = 0;
};

inline constexpr AxisSet kOuterShards = AxisSet::outer_shards(), kInnerShards = AxisSet::inner_shards();

/// The axes in the order of the mesh, the shard axis in its parts.
inline constexpr std::array<AxisSet, kNumAxes + 1> kAxisParts = {
    Axis::Pipeline, Axis::Replicate, kOuterShards, kInnerShards, Axis::Context, Axis::Tensor};

/// Ranks with different coordinates on these axes read different data.
inline constexpr AxisSet kDataAxes = {Axis::Replicate, Axis::Shard};

using Coordinates = std::array<int, kNumAxes>;

struct MeshShape {
    std::array<int, kNumAxes> degrees = {1, 1, 1, 1, 1};
    AxisSet expert_axes = {};  // they divide the experts of a model; none: each rank has all of them
    int inner_shards = 1;      // the degree of kInnerShards; it divides that of the shard axis

    int degree(AxisSet axes) const;
    /// Those of `axes` with more than one rank; all of `axes` if none has. The shard axis is whole if a part
    /// of it is in `axes` and the other one has one rank, so that equal groups have one name.
    AxisSet used(AxisSet axes) const;
    int num_ranks() const;
    std::string name() const;  // "pp 2 x tp 4"; "one rank"

    Coordinates coordinates(int rank) const;
    int rank(const Coordinates& coordinates) const;

    /// The number of the rank at `coordinates` among the ranks that differ from it only on `axes`:
    /// 0 .. degree(axes)-1.
    int index(const Coordinates& coordinates, AxisSet axes) const;

    /// The ranks, ascending, that differ from `rank` only on `axes`, `rank` included. The last of these axes
    /// is cut into `parts` equal blocks of neighbours; only ranks in the block of `rank` are returned.
    /// REQUIRES: parts divides the degree of the last axis, which is whole if there are several.
    std::vector<int> group(int rank, AxisSet axes, int parts = 1) const;
};

/// The degrees in a configuration; shard = -1 means all ranks that the other axes leave.
struct MeshRequest {
    int pipeline = 1, replicate = 1, shard = -1, context = 1, tensor = 1, expert = 1;
    int64_t num_experts = 0;  // that the model has
};

/// Returns the degrees, with the remaining ranks in place of shard = -1. Experts are divided by the nearest
/// ranks: those of the tensor axis, with the context axis, or with an inner part of the shard axis, too.
/// Throws UserError, which says what to change, if a degree is invalid or does not divide the experts, or if
/// the product of the degrees is not `num_ranks`.
MeshShape resolve(const MeshRequest& request, int num_ranks);

}  // namespace argosy::layout

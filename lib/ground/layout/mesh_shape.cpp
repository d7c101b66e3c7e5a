#include "layout/mesh_shape.h"

#include <limits>
#include <set>

#include "base/error.h"

namespace argosy::layout {
namespace {

constexpr const char* kNames[kNumAxes] = {"pp", "dp_replicate", "dp_shard", "cp", "tp"};

constexpr const char* kKeys[kNumAxes] = {
    "parallelism.pipeline_parallel_degree", "parallelism.data_parallel_replicate_degree",
    "parallelism.data_parallel_shard_degree", "parallelism.context_parallel_degree",
    "parallelism.tensor_parallel_degree"};

/// The product of the degrees, or the largest integer if the product would overflow: the degrees are the
/// user's input and may be huge.
int64_t product(const std::array<int, kNumAxes>& degrees) {
    constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
    int64_t total = 1;
    for (const int degree : degrees) total = total > kLargest / degree ? kLargest : total * degree;
    return total;
}

std::string spelled_out(const std::array<int, kNumAxes>& degrees) {
    std::string text;
    for (int axis = 0; axis < kNumAxes; ++axis) {
        if (degrees[axis] == 1) continue;
        text += fmt::format("{}{} {}", text.empty() ? "" : " x ", kNames[axis], degrees[axis]);
    }
    return text.empty() ? "all degrees 1" : text;
}

std::string ranks_text(int64_t count) { return fmt::format("{} rank{}", count, count == 1 ? "" : "s"); }

/// The axes that divide experts into `degree` parts.
AxisSet expert_axes(const MeshShape& shape, int degree) {
    const AxisSet choices[] = {
        {}, Axis::Tensor, {Axis::Context, Axis::Tensor}, {Axis::Shard, Axis::Context, Axis::Tensor}};
    std::set<int> known;
    for (const AxisSet axes : choices) {
        if (shape.degree(axes) == degree) return degree == 1 ? AxisSet() : axes;
        known.insert(shape.degree(axes));
    }
    std::string listed;
    for (const int each : known) listed += fmt::format("{}{}", listed.empty() ? "" : ", ", each);
    throw UserError(
        "parallelism.expert_parallel_degree is {}; on this mesh it can be {}, which are 1, tp, cp x tp and "
        "dp_shard x cp x tp; or let dp_shard x cp x tp be {}, and dp_replicate the rest",
        degree, listed, degree);
}

}  // namespace

std::string AxisSet::name() const {
    std::string text;
    for (int axis = 0; axis < kNumAxes; ++axis) {
        if (has(static_cast<Axis>(axis))) text += (text.empty() ? "" : " x ") + std::string(kNames[axis]);
    }
    return text;
}

int MeshShape::degree(AxisSet axes) const {
    int degree = 1;
    for (int axis = 0; axis < kNumAxes; ++axis) {
        if (axes.has(static_cast<Axis>(axis))) degree *= degrees[axis];
    }
    return degree;
}

AxisSet MeshShape::used(AxisSet axes) const {
    AxisSet large;
    for (int i = 0; i < kNumAxes; ++i) {
        const auto axis = static_cast<Axis>(i);
        if (axes.has(axis) && degree(axis) > 1) large.add(axis);
    }
    return large.empty() ? axes : large;
}

int MeshShape::num_ranks() const { return static_cast<int>(product(degrees)); }

std::string MeshShape::name() const {
    if (num_ranks() == 1) return "one rank";
    const int experts = degree(expert_axes);
    return spelled_out(degrees) + (experts == 1 ? "" : fmt::format(", ep {}", experts));
}

Coordinates MeshShape::coordinates(int rank) const {
    Coordinates coordinates{};
    for (int axis = kNumAxes - 1; axis >= 0; --axis) {
        coordinates[axis] = rank % degrees[axis];
        rank /= degrees[axis];
    }
    return coordinates;
}

int MeshShape::rank(const Coordinates& coordinates) const {
    int rank = 0;
    for (int axis = 0; axis < kNumAxes; ++axis) rank = rank * degrees[axis] + coordinates[axis];
    return rank;
}

int MeshShape::index(const Coordinates& coordinates, AxisSet axes) const {
    int index = 0;
    for (int axis = 0; axis < kNumAxes; ++axis) {
        if (axes.has(static_cast<Axis>(axis))) index = index * degrees[axis] + coordinates[axis];
    }
    return index;
}

std::vector<int> MeshShape::group(int rank_in_group, AxisSet axes, int parts) const {
    int last = 0;
    for (int axis = 0; axis < kNumAxes; ++axis) {
        if (axes.has(static_cast<Axis>(axis))) last = axis;
    }
    ARGOSY_CHECK(degrees[last] % parts == 0, "{} parts of {}", parts, kNames[last]);
    const int block = degrees[last] / parts;
    const Coordinates own = coordinates(rank_in_group);
    std::vector<int> members;
    for (int candidate = 0; candidate < num_ranks(); ++candidate) {
        const Coordinates other = coordinates(candidate);
        bool same = own[last] / block == other[last] / block;
        for (int axis = 0; axis < kNumAxes; ++axis) {
            same &= axes.has(static_cast<Axis>(axis)) || own[axis] == other[axis];
        }
        if (same) members.push_back(candidate);
    }
    return members;
}

MeshShape resolve(const MeshRequest& request, int num_ranks) {
    MeshShape shape{{request.pipeline, request.replicate, request.shard, request.context, request.tensor}};
    const int shard_axis = static_cast<int>(Axis::Shard);
    for (int axis = 0; axis < kNumAxes; ++axis) {
        const bool rest = axis == shard_axis && shape.degrees[axis] == -1;
        if (shape.degrees[axis] < 1 && !rest) {
            throw UserError("{} is {}; a degree is at least 1{}", kKeys[axis], shape.degrees[axis],
                            axis == shard_axis ? " (or -1: all ranks that the other axes leave)" : "");
        }
    }
    if (request.shard == -1) {
        shape.degrees[shard_axis] = 1;
        const int64_t others = product(shape.degrees);
        if (num_ranks % others != 0) {
            throw UserError(
                "{} takes a multiple of {} ranks, but the run has {}; change a degree under [parallelism], "
                "or start a multiple of {} ranks (in a plan: --gpus)",
                spelled_out(shape.degrees), others, num_ranks, others);
        }
        shape.degrees[shard_axis] = static_cast<int>(num_ranks / others);
    }
    if (const int64_t wanted = product(shape.degrees); wanted != num_ranks) {
        throw UserError(
            "{} = {}, but the run has {}; change a degree under [parallelism] (dp_shard = -1 takes the "
            "rest), or start {} (in a plan: --gpus {})",
            spelled_out(shape.degrees), ranks_text(wanted), num_ranks, ranks_text(wanted), wanted);
    }
    shape.expert_axes = expert_axes(shape, request.expert);
    return shape;
}

}  // namespace argosy::layout

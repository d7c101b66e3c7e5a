#include "layout/mesh_shape.h"

#include <limits>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace argosy::layout {
namespace {

constexpr const char* kNames[kNumAxes] = {"pp", "dp_replicate", "dp_shard", "cp", "tp"};

/// A coordinate for each of kAxisParts.
using Digits = std::array<int, kAxisParts.size()>;

Digits digits_of(const Coordinates& all, int inner) {
    return {all[0], all[1], all[2] / inner, all[2] % inner, all[3], all[4]};
}

Digits degrees_of_parts(const MeshShape& shape) {
    const auto& all = shape.degrees;
    return {all[0], all[1], all[2] / shape.inner_shards, shape.inner_shards, all[3], all[4]};
}

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

/// The degrees that experts can have on the mesh, ascending: 1, tp, cp x tp and cp x tp x inner.
std::vector<int> expert_degrees(const MeshShape& shape) {
    const int tensor = shape.degree(Axis::Tensor), near = tensor * shape.degree(Axis::Context);
    std::set<int> degrees = {1, tensor};
    for (int inner = 1; inner <= shape.degree(Axis::Shard); ++inner)
        if (shape.degree(Axis::Shard) % inner == 0) degrees.insert(near * inner);
    return {degrees.begin(), degrees.end()};
}

void check_experts(const MeshShape& shape, int degree, int64_t num_experts) {
    if (degree == 1) return;
    if (num_experts == 0)
        throw UserError("parallelism.expert_parallel_degree is {}, but the model has no experts", degree);
    std::vector<int> nearest;
    for (const int each : expert_degrees(shape)) {
        if (num_experts % each != 0) continue;
        if (each == degree) return;
        if (each < degree) nearest.clear();
        nearest.push_back(each);
        if (each > degree) break;
    }
    throw UserError(
        "parallelism.expert_parallel_degree is {}; the nearest that {} and the model's {} experts allow: {} "
        "(1, tp, cp x tp, or cp x tp x a divisor of dp_shard, and a divisor of the experts)",
        degree, spelled_out(shape.degrees), num_experts, listed(nearest));
}

}  // namespace

std::string AxisSet::name() const {
    std::string text;
    const auto append = [&](const std::string& name) { text += (text.empty() ? "" : " x ") + name; };
    for (int axis = 0; axis < kNumAxes; ++axis) {
        if (has(static_cast<Axis>(axis))) append(kNames[axis]);
        if (static_cast<Axis>(axis) != Axis::Shard || has(Axis::Shard)) continue;
        if (has(kOuterShards)) append("dp_shard outer");
        if (has(kInnerShards)) append("dp_shard inner");
    }
    return text;
}

int MeshShape::degree(AxisSet axes) const {
    const Digits degrees_of_all = degrees_of_parts(*this);
    int degree = 1;
    for (size_t part = 0; part < kAxisParts.size(); ++part) {
        if (axes.has(kAxisParts[part])) degree *= degrees_of_all[part];
    }
    return degree;
}

AxisSet MeshShape::used(AxisSet axes) const {
    AxisSet large;
    for (const AxisSet part : kAxisParts) {
        if (axes.has(part) && degree(part) > 1) large.add(part);
    }
    const AxisSet shards = large.without(large.without(Axis::Shard));
    if (!shards.empty() && degree(shards) == degree(Axis::Shard)) large.add(Axis::Shard);
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
    const Digits all = digits_of(coordinates, inner_shards), degrees_of_all = degrees_of_parts(*this);
    int index = 0;
    for (size_t part = 0; part < kAxisParts.size(); ++part) {
        if (axes.has(kAxisParts[part])) index = index * degrees_of_all[part] + all[part];
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
    const Digits digits = digits_of(own, inner_shards);
    std::vector<int> members;
    for (int candidate = 0; candidate < num_ranks(); ++candidate) {
        const Coordinates other = coordinates(candidate);
        const Digits of_other = digits_of(other, inner_shards);
        bool same = parts == 1 || own[last] / block == other[last] / block;
        for (size_t part = 0; part < kAxisParts.size(); ++part) {
            same &= axes.has(kAxisParts[part]) || digits[part] == of_other[part];
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
    check_experts(shape, request.expert, request.num_experts);
    const int tensor = shape.degree(Axis::Tensor), near = tensor * shape.degree(Axis::Context);
    if (request.expert == tensor && tensor > 1) {
        shape.expert_axes = Axis::Tensor;
    } else if (request.expert > 1) {
        shape.expert_axes = {kInnerShards, Axis::Context, Axis::Tensor};
        shape.inner_shards = request.expert / near;
    }
    return shape;
}

}  // namespace argosy::layout

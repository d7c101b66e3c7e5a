#include "layout/param_spec.h"

#include <algorithm>

#include "base/error.h"

namespace argosy::layout {
namespace {

/// The pipeline ranks that hold the parameter, each once, in the order of the parameter's stages. One rank
/// may run several stages.
std::vector<int> pipeline_ranks(const ParamSpec& spec, const MeshShape& mesh) {
    std::vector<int> ranks;
    for (const int stage : spec.stages) {
        const int rank = stage % mesh.degree(Axis::Pipeline);
        if (std::ranges::find(ranks, rank) == ranks.end()) ranks.push_back(rank);
    }
    return ranks;
}

}  // namespace

int64_t Slab::num_elements() const {
    int64_t count = 1;
    for (const int64_t extent : size) count *= extent;
    return count;
}

SlabRows rows_of(const std::vector<int64_t>& shape, const Slab& slab) {
    int64_t inner = 1;  // number of elements from one index of dim 1 to the next
    for (size_t dim = 2; dim < shape.size(); ++dim) {
        ARGOSY_CHECK(slab.size[dim] == shape[dim], "dim {} is cut", dim);
        inner *= shape[dim];
    }
    if (shape.size() == 1) return {slab.offset[0], std::max<int64_t>(shape[0], 1), 0};
    const int64_t stride = shape[1] * inner;
    return {slab.offset[0] * stride + slab.offset[1] * inner, std::max<int64_t>(slab.size[1] * inner, 1),
            stride};
}

Range chunk(int64_t n, int parts, int index) {
    const int64_t size = (n + parts - 1) / parts;
    const int64_t begin = std::min(n, size * index);
    return {begin, std::min(n, begin + size) - begin};
}

Slab slab_of(const ParamSpec& spec, const MeshShape& mesh, const Coordinates& coordinates, int num_splits) {
    Slab slab{std::vector<int64_t>(spec.shape.size(), 0), spec.shape};
    const auto count = num_splits < 0 ? spec.splits.size() : static_cast<size_t>(num_splits);
    for (size_t i = 0; i < count; ++i) {
        const Split& split = spec.splits[i];
        const int block = mesh.degree(split.axes) / split.parts;
        const Range own =
            chunk(slab.size[split.dim], split.parts, mesh.index(coordinates, split.axes) / block);
        slab.offset[split.dim] += own.begin;
        slab.size[split.dim] = own.size;
    }
    return slab;
}

Share share_of(const ParamSpec& spec, const MeshShape& mesh, const Coordinates& coordinates) {
    Share share;
    const auto add_axis = [&](int index, int count) {
        share = {share.index * count + index, share.count * count};
    };
    const std::vector<int> ranks = pipeline_ranks(spec, mesh);
    const auto own = std::ranges::find(ranks, coordinates[static_cast<int>(Axis::Pipeline)]);
    ARGOSY_CHECK(own != ranks.end(), "{} is on other pipeline stages", spec.name);
    add_axis(static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()));
    AxisSet split_axes = Axis::Pipeline;
    for (const Split& split : spec.splits) {
        const int block = mesh.degree(split.axes) / split.parts;  // number of neighbours with the same chunk
        add_axis(mesh.index(coordinates, split.axes) % block, block);
        split_axes.add(split.axes);
    }
    for (int i = 0; i < kNumAxes; ++i) {
        const auto axis = static_cast<Axis>(i);
        if (!split_axes.has(axis)) add_axis(coordinates[i], mesh.degree(axis));
    }
    return share;
}

bool holds(const ParamSpec& spec, const MeshShape& mesh, const Coordinates& coordinates) {
    const std::vector<int> ranks = pipeline_ranks(spec, mesh);
    return std::ranges::find(ranks, coordinates[static_cast<int>(Axis::Pipeline)]) != ranks.end();
}

bool owns(const ParamSpec& spec, const MeshShape& mesh, const Coordinates& coordinates) {
    return holds(spec, mesh, coordinates) && share_of(spec, mesh, coordinates).index == 0;
}

}  // namespace argosy::layout

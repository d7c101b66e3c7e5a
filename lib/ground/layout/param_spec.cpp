#include "layout/param_spec.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace argosy::layout {
namespace {

constexpr int kMean = 262140;  // mean of the sum of eight uniform integers in [0, 65535]

float normal_unit(uint64_t element, uint64_t seed, uint64_t key) {
    const auto words = philox({static_cast<uint32_t>(element), static_cast<uint32_t>(element >> 32),
                               static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
                              {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
    int sum = 0;
    for (const uint32_t word : words) sum += static_cast<int>(word & 0xFFFF) + static_cast<int>(word >> 16);
    return static_cast<float>(sum - kMean);
}

}  // namespace

Slab slab_of(const ParamSpec& spec, const MeshShape& mesh, const Coordinates& coordinates, int num_cuts) {
    Slab slab = whole(spec.shape);
    const auto count = num_cuts < 0 ? spec.cuts.size() : static_cast<size_t>(num_cuts);
    for (size_t i = 0; i < count; ++i) {
        const Cut& cut = spec.cuts[i];
        const int block = mesh.degree(cut.axes) / cut.parts;
        const Range own = chunk(slab.size[cut.dim], cut.parts, mesh.index(coordinates, cut.axes) / block);
        slab.offset[cut.dim] += own.begin;
        slab.size[cut.dim] = own.size;
    }
    return slab;
}

Share share_of(const ParamSpec& spec, const MeshShape& mesh, const Coordinates& coordinates) {
    Share share;
    const auto add_axis = [&](int index, int count) {
        share = {share.index * count + index, share.count * count};
    };
    const std::vector<int>& ranks = spec.pipeline_ranks;
    const auto own = std::ranges::find(ranks, coordinates[static_cast<int>(Axis::Pipeline)]);
    ARGOSY_CHECK(own != ranks.end(), "{} is on other pipeline ranks", spec.name);
    add_axis(static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()));
    AxisSet cut_axes = Axis::Pipeline;
    for (const Cut& cut : spec.cuts) {
        const int block = mesh.degree(cut.axes) / cut.parts;  // number of neighbours with the same chunk
        add_axis(mesh.index(coordinates, cut.axes) % block, block);
        cut_axes.add(cut.axes);
    }
    for (const AxisSet part : kAxisParts) {
        if (!cut_axes.has(part)) add_axis(mesh.index(coordinates, part), mesh.degree(part));
    }
    return share;
}

bool holds(const ParamSpec& spec, const Coordinates& coordinates) {
    const int own = coordinates[static_cast<int>(Axis::Pipeline)];
    return std::ranges::find(spec.pipeline_ranks, own) != spec.pipeline_ranks.end();
}

bool owns(const ParamSpec& spec, const MeshShape& mesh, const Coordinates& coordinates) {
    return holds(spec, coordinates) && share_of(spec, mesh, coordinates).index == 0;
}

void initial_values(const ParamSpec& spec, const Slab& slab, uint64_t seed, float* out) {
    if (spec.init.kind == InitKind::Constant) {
        std::fill_n(out, slab.num_elements(), static_cast<float>(spec.init.value));
        return;
    }
    const auto scale = static_cast<float>(spec.init.value / std::sqrt(8 * (4294967296.0 - 1) / 12));
    const uint64_t key = name_key(spec.name);
    if (slab.num_elements() == 0) return;
    for_each_run(slab, whole(spec.shape), slab, [&](const Run& run) {
        const float factor = scale;  // a copy: the compiler assumes that stores to `out` may change `scale`
        for (int64_t i = 0; i < run.length; ++i)
            out[run.in_b + i] = normal_unit(run.in_a + i, seed, key) * factor;
    });
}

}  // namespace argosy::layout

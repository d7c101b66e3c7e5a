// The collectives of a job's step that the pre-flight measures, at their real sizes and over their real
// groups.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "layout/mesh_shape.h"
#include "parallel/traffic.h"

namespace argosy::preflight {

/// One collective over all groups of some axes of the mesh.
struct Load {
    std::string axes;                      // "dp_shard", as the mesh names them
    std::vector<std::vector<int>> groups;  // ranks of each; equal sizes, each rank in exactly one group
    bench::Case kind;                      // the measurement
    size_t step_bytes;                     // bytes of a launch in the step; `kind` may measure fewer
};

/// For each kind of collective over each set of mesh axes, the one that moves the most bytes in a step.
/// `traffic` is that of all ranks. A load measures `most_bytes` per launch at most.
std::vector<Load> loads_of(std::span<const parallel::Traffic> traffic, const layout::MeshShape& mesh,
                           size_t most_bytes);

}  // namespace argosy::preflight

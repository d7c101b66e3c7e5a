// The collectives that a job's step will run, as the pre-flight measures them: at the job's real sizes and
// over its real groups.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "mesh/mesh_shape.h"
#include "parallel/traffic.h"

namespace argosy::preflight {

/// One collective over all groups of some axes of the mesh.
struct Load {
    std::string axes;                      // "dp_shard", as the mesh names them
    std::vector<std::vector<int>> groups;  // of ranks; all of one size, and each rank in one
    bench::Case kind;                      // what is measured
    size_t step_bytes;                     // of a launch in the step; more than is measured where it is huge
};

/// Of every collective over each set of axes the one that carries most in a step. `traffic`: of all ranks.
std::vector<Load> loads_of(std::span<const parallel::Traffic> traffic, const mesh::MeshShape& mesh,
                           size_t most_bytes);

}  // namespace argosy::preflight

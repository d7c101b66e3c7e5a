// What a training step sends over the mesh, from the placement alone: for checks and forecasts that run
// before a model exists. Small collectives (scalars, the loss's sums over the vocabulary) are left out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "mesh/mesh_shape.h"
#include "parallel/placement.h"
#include "parallel/sharded_parameter.h"

namespace argosy::parallel {

/// One kind of launch: a collective, or several grouped, over the ranks that differ only on `axes` (in blocks
/// of them, where parts > 1: see MeshShape::group).
struct Traffic {
    mesh::AxisSet axes;
    int parts = 1;
    comm::OpKind kind;
    at::ScalarType type;
    int64_t elements;      // of the whole launch, in the larger of a rank's two buffers
    int64_t num_launches;  // that are of this size: units of the model, or 1
    bool operator==(const Traffic&) const = default;
};

/// Of the rank at `coordinates`, without axes of one rank. `microbatch_tokens`: that pass through its blocks
/// at once.
std::vector<Traffic> step_traffic(const PlacedModel& placed, const mesh::MeshShape& mesh,
                                  const mesh::Coordinates& coordinates, const Precision& precision,
                                  int64_t dim, int64_t microbatch_tokens);

/// Of all ranks of the job: those of each pipeline rank, among which ranks are alike but for shorter last
/// pieces.
std::vector<Traffic> job_traffic(const PlacedModel& placed, const mesh::MeshShape& mesh,
                                 const Precision& precision, int64_t dim, int64_t microbatch_tokens);

}  // namespace argosy::parallel

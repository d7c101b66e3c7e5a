// The messages and collectives of a training step, computed from the placement alone, for checks and
// forecasts before a model exists. The traffic leaves out small collectives: scalars, and the loss's sums
// over the vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "layout/mesh_shape.h"
#include "parallel/placement.h"
#include "parallel/sharded_parameter.h"

namespace argosy::parallel {

/// One kind of launch: a collective, or several grouped. The launch runs over the ranks that differ only on
/// `axes`, or with parts > 1 over blocks of these ranks (see MeshShape::group).
struct Traffic {
    layout::AxisSet axes;
    int parts = 1;
    comm::OpKind kind;
    at::ScalarType type;
    int64_t elements;      // elements of the whole launch in the larger of a rank's two buffers
    int64_t num_launches;  // number of launches of this kind and size
    bool operator==(const Traffic&) const = default;
};

/// The traffic of the rank at `coordinates`. Leaves out axes that have one rank. `dim` is the model's dim;
/// `microbatch_tokens` is the number of tokens that pass through a block at once.
std::vector<Traffic> step_traffic(const ModelPlacement& placement, const layout::MeshShape& mesh,
                                  const layout::Coordinates& coordinates, const Precision& precision,
                                  int64_t dim, int64_t microbatch_tokens);

/// The traffic of the whole job: the traffic of one rank for each coordinate on the pipeline axis. Ranks with
/// the same coordinate have the same traffic, except that the last ones on the tensor axis may have less.
std::vector<Traffic> job_traffic(const ModelPlacement& placement, const layout::MeshShape& mesh,
                                 const Precision& precision, int64_t dim, int64_t microbatch_tokens);

}  // namespace argosy::parallel

// The one description of how a parameter is sharded. FSDP, tensor and pipeline parallelism, checkpoints and
// the forecast of traffic all read it. Pure data and arithmetic, no tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/mesh_shape.h"

namespace argosy::layout {

enum class InitKind { Bell, Constant };

/// The initial values of a parameter. Constant: all `value`. Bell: mean 0 and standard deviation `value`,
/// bounded at 4.9 deviations (see initial.h).
struct Init {
    InitKind kind = InitKind::Constant;
    double value = 0;
};

/// Tensor dim `dim` is cut into `parts` chunks of ceil(n / parts) over the mesh axes `axes`; the last chunks
/// may be shorter or empty. If `parts` is smaller than the degree of the axes (fewer KV heads than ranks),
/// blocks of degree / parts neighbours hold the same chunk.
struct Split {
    AxisSet axes;
    int dim = 0;
    int parts = 1;
};

/// The gradient is the sum of the ranks' results over `axes`, within blocks as in MeshShape::group. There is
/// one sum over all the axes together, because sums over one axis after the other can differ in their last
/// bits between ranks, and copies of a parameter must stay equal.
struct PartialSum {
    AxisSet axes;  // empty: no sum
    int parts = 1;
};

struct ParamSpec {
    std::string name = {};  // the name in a checkpoint: layers.0.attention.wq.weight
    std::vector<int64_t> shape = {};
    Init init = {};
    bool is_matrix = true;           // matrices get weight decay by default
    std::vector<int> stages = {0};   // pipeline stages that hold the parameter; two if tied
    std::vector<Split> splits = {};  // in order: tensor parallel first, then the shard axes
    PartialSum gradient = {};        // the sum to make after the reduce-scatter over the shard axes
};

/// A part of a tensor: the index range [offset, offset + size) in each dim.
struct Slab {
    std::vector<int64_t> offset, size;
    int64_t num_elements() const;
    bool operator==(const Slab&) const = default;
};

/// Maps the elements of a slab to elements of the whole tensor, both counted row-major. The slab consists of
/// rows of `length` contiguous elements; the first row begins at `first`, each next row `stride` later.
struct SlabRows {
    int64_t first = 0, length = 1, stride = 1;
    int64_t element(int64_t i) const { return first + i / length * stride + i % length; }
};
/// REQUIRES: only the first two dims of the tensor are cut.
SlabRows rows_of(const std::vector<int64_t>& shape, const Slab& slab);

/// Chunk `index` of [0, n) cut into `parts` chunks of ceil(n / parts); the last ones may be shorter or empty.
struct Range {
    int64_t begin = 0, size = 0;
};
Range chunk(int64_t n, int parts, int index);

/// The slab that the rank at `coordinates` holds after the first `num_splits` splits (-1: all).
Slab slab_of(const ParamSpec& spec, const MeshShape& mesh, const Coordinates& coordinates,
             int num_splits = -1);

/// The number of a rank among the `count` ranks that hold the same elements, itself included.
struct Share {
    int index = 0, count = 1;
};
/// REQUIRES: holds(spec, mesh, coordinates).
Share share_of(const ParamSpec& spec, const MeshShape& mesh, const Coordinates& coordinates);

/// Whether the pipeline rank of `coordinates` holds the parameter.
bool holds(const ParamSpec& spec, const MeshShape& mesh, const Coordinates& coordinates);

/// Whether the rank at `coordinates` counts the elements in norms: true on exactly one of the ranks that hold
/// the same elements, the one with Share::index 0.
bool owns(const ParamSpec& spec, const MeshShape& mesh, const Coordinates& coordinates);

}  // namespace argosy::layout

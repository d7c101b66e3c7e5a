// Everything that sharding needs to know about a parameter, once: FSDP, tensor and pipeline parallelism,
// checkpoints and the planner all read this one description. Pure data and arithmetic, no tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mesh/mesh_shape.h"

namespace argosy::layout {

enum class InitKind { Bell, Constant };

/// How a parameter starts. Bell: mean 0 and standard deviation `value`, bounded at 4.9 deviations (see
/// initial.h).
struct Init {
    InitKind kind = InitKind::Constant;
    double value = 0;
};

/// Dimension `dim` is cut into `parts` pieces of ceil(n / parts) along `axes`, the last ones shorter or
/// empty. Where `parts` is smaller than the axes' degree (fewer KV heads than ranks), blocks of degree /
/// parts neighbours hold the same piece.
struct Split {
    mesh::AxisSet axes;
    int dim = 0;
    int parts = 1;
};

/// A gradient is the sum over `axes` of what each rank computes (within `parts` blocks of them, as in Split).
struct PartialSum {
    mesh::AxisSet axes;
    int parts = 1;
};

struct ParamSpec {
    std::string name = {};  // as in a checkpoint: layers.0.attention.wq.weight
    std::vector<int64_t> shape = {};
    Init init = {};
    bool is_matrix = true;                  // weight decay by default
    std::vector<int> stages = {0};          // pipeline stages that hold it; tied embeddings live on two
    std::vector<Split> splits = {};         // in order: tensor parallel first, then the shard axes
    std::vector<PartialSum> gradient = {};  // sums still to be made after the shard axes' reduce-scatter
};

/// A box of a tensor.
struct Slab {
    std::vector<int64_t> offset, size;
    int64_t num_elements() const;
    bool operator==(const Slab&) const = default;
};

/// Where a slab's elements, counted row-major, lie in the whole tensor: `length` in a row from `first`, then
/// as many `stride` further on, and so forth.
struct SlabRows {
    int64_t first = 0, length = 1, stride = 1;
    int64_t element(int64_t i) const { return first + i / length * stride + i % length; }
};
/// REQUIRES: only the first two dims of the tensor are cut.
SlabRows rows_of(const std::vector<int64_t>& shape, const Slab& slab);

/// Piece `index` of `parts` of [0, n): ceil-sized chunks, the last ones shorter or empty.
struct Range {
    int64_t begin = 0, size = 0;
};
Range chunk(int64_t n, int parts, int index);

/// The box of the global tensor after the first `num_splits` splits (all by default) at `coordinates`.
Slab slab_of(const ParamSpec& spec, const mesh::MeshShape& mesh, const mesh::Coordinates& coordinates,
             int num_splits = -1);

/// This rank among those that hold the same elements as it, itself included.
struct Share {
    int index = 0, count = 1;
};
/// REQUIRES: a pipeline rank that holds the parameter.
Share share_of(const ParamSpec& spec, const mesh::MeshShape& mesh, const mesh::Coordinates& coordinates);

/// Whether this pipeline rank is among those that hold the parameter.
bool holds(const ParamSpec& spec, const mesh::MeshShape& mesh, const mesh::Coordinates& coordinates);

/// True on exactly one of the ranks that hold the same elements, the first one of their share: it counts for
/// norms.
bool owns(const ParamSpec& spec, const mesh::MeshShape& mesh, const mesh::Coordinates& coordinates);

}  // namespace argosy::layout

// A ParamSpec is the only description of a parameter: how it is sharded, which FSDP, tensor and pipeline
// parallelism and checkpoints all read, and its initial values. Pure data and arithmetic, no tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/mesh_shape.h"
#include "layout/slab.h"

namespace argosy::layout {

enum class InitKind { Normal, Constant };

/// The initial values of a parameter. Constant: all elements are `value`. Normal: mean 0 and standard
/// deviation `value`, bounded at 4.9 standard deviations (see initial_values()).
struct Init {
    InitKind kind = InitKind::Constant;
    double value = 0;
};

/// How optimizers tell parameters apart. Matrix: a layer's matrix. A tied head's matrix is the Embedding.
enum class ParameterKind { Matrix, Router, Embedding, Head, Vector };

/// Tensor dim `dim` is cut into `parts` chunks of ceil(n / parts) over the mesh axes `axes`; the last chunks
/// may be shorter or empty. If `parts` is smaller than the degree of the axes (fewer KV heads than ranks),
/// blocks of degree / parts neighbours hold the same chunk.
struct Cut {
    AxisSet axes;
    int dim = 0;
    int parts = 1;
};

/// The gradient is the sum of the ranks' results over `axes`, within the blocks of MeshShape::group. All axes
/// are summed together: separate sums over one axis after the other can differ in their last bits between
/// ranks, but copies of a parameter must stay equal.
struct PartialSum {
    AxisSet axes;  // empty: no sum
    int parts = 1;
};

struct ParamSpec {
    std::string name = {};  // the name in a checkpoint: layers.0.attention.wq.weight
    std::vector<int64_t> shape = {};
    Init init = {};
    ParameterKind kind = ParameterKind::Matrix;
    int64_t num_matrices = 1;  // a stack of so many matrices with equally many rows
    int num_heads = 1;  // each head has an equal block of the rows; 1: rows belong to no head
    bool makes_scores = false;  // attention scores are proportional to it: of q and k
    /// The pipeline ranks that hold the parameter, each once; two for a tied table on two ranks.
    std::vector<int> pipeline_ranks = {0};
    std::vector<Cut> cuts = {};  // in order: the tensor axis first, then `shards`
    /// The axes whose ranks share the rows: a layer computes with weights that were gathered over them, and
    /// the gradient of the weights is reduced and scattered over them.
    AxisSet shards = {};
    PartialSum gradient = {};  // the sum over ranks that is still to be made after the reduce-scatter
};

/// The slab that the rank at `coordinates` holds after the first `num_cuts` cuts (-1: all).
Slab slab_of(const ParamSpec& spec, const MeshShape& mesh, const Coordinates& coordinates, int num_cuts = -1);

/// `count` ranks hold the same elements; `index` is the number of one of them, from 0.
struct Share {
    int index = 0, count = 1;
};
/// REQUIRES: holds(spec, coordinates).
Share share_of(const ParamSpec& spec, const MeshShape& mesh, const Coordinates& coordinates);

/// Whether the rank at `coordinates` holds the parameter.
bool holds(const ParamSpec& spec, const Coordinates& coordinates);

/// Whether the rank at `coordinates` counts its elements in norms. Exactly one of the ranks that hold the
/// same elements does: the rank with Share::index 0.
bool owns(const ParamSpec& spec, const MeshShape& mesh, const Coordinates& coordinates);

/// Fills out[0 .. slab.num_elements()) with the initial values of the slab's elements, row-major. They are a
/// pure function of (seed, parameter name, global element index). The bits are the same on every mesh,
/// processor and device, because all operations are exact or correctly rounded: integer arithmetic, one
/// conversion to float and one product.
///
/// Normal(std): element n of the global tensor, counted row-major, is float(S - 262140) * float(std / sqrt(8
/// (2^32-1) / 12)), where S adds the eight 16-bit halves of Philox4x32-10(counter = (n, seed), key =
/// FNV-1a-64(name)). The sum of eight uniform numbers is bell-shaped (excess kurtosis -0.15) and bounded
/// at 4.9 standard deviations, so no value needs truncating.
void initial_values(const ParamSpec& spec, const Slab& slab, uint64_t seed, float* out);

}  // namespace argosy::layout

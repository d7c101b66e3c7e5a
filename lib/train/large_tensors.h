// The large tensors of a step by name, so that an allocator, which knows a size alone, can be answered for.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mesh/mesh.h"
#include "train/trainer.h"

namespace argosy::train {

/// Tensors of one shape and type.
struct LargeTensor {
    std::vector<std::string> names;  // "the residual stream", "the weights or gradient of output.weight", ...
    std::vector<int64_t> shape;
    at::ScalarType type;
    int64_t num_bytes() const;
};

/// Of this rank, by arithmetic: activations of a microbatch, units' gathered weights and gradients, and what
/// is held of each matrix; those of all layers of the model count once. Not everything that a step allocates.
std::vector<LargeTensor> large_tensors(const TrainerOptions& options, const mesh::Mesh& mesh);

/// "a layer's gate and up [16384, 37888] of bfloat16" of those for which an allocator would ask
/// for `bytes`, which LibTorch's for GPUs rounds up; empty where there are none.
std::string names_of_size(std::span<const LargeTensor> tensors, int64_t bytes);

}  // namespace argosy::train

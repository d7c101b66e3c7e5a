// Names the large tensors of a step by their size. A failing allocator reports only a number of bytes, and
// training_memory.h uses this list to name the tensors that may have needed these bytes.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "train/trainer.h"

namespace argosy::account {

/// Tensors of one shape and type.
struct LargeTensor {
    std::vector<std::string> names;  // "the residual stream", "the weights or gradient of output.weight", ...
    std::vector<int64_t> shape;
    at::ScalarType type;
    int64_t num_bytes() const;
};

/// This rank's large tensors, computed without allocating: activations of a microbatch, gathered weights and
/// gradients of units, and weights, gradient and moments of each matrix. Equal layers are listed once. A step
/// also allocates tensors that are not in the list.
std::vector<LargeTensor> large_tensors(const train::TrainerOptions& options, const comm::Mesh& mesh);

/// Describes the tensors whose allocation asks for `bytes`, as "a layer's gate and up [16384, 37888] of
/// bfloat16". LibTorch's GPU allocator rounds sizes up, so rounded sizes match too. Empty if none match.
std::string names_of_size(std::span<const LargeTensor> tensors, int64_t bytes);

}  // namespace argosy::account

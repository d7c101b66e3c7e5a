// Names the large tensors of a step by their size. When an allocation fails, the allocator reports only a
// number of bytes; training_memory.h uses this list to name the tensors that may have needed these bytes.
//
// The list repeats by hand what the model allocates, and plan.large_tensors compares it with the requests of
// runs. The record of a dry step (plan/rank_trace.h) cannot replace it: that record has the bytes of
// allocations and the sizes of products, but not what a tensor is for; and tensors without data take the way
// of a processor's, so that the sizes that depend on the device, as the rows of a chunk of logits, are not
// those of a GPU.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "train/trainer.h"

namespace argosy::plan {

/// The name of a type in configurations, else LibTorch's: "bfloat16".
std::string type_name(at::ScalarType type);

/// Tensors of one shape and type.
struct LargeTensor {
    std::vector<std::string> names;  // "the residual stream", "the weights or gradient of output.weight", ...
    std::vector<int64_t> shape;
    at::ScalarType type;
    int64_t num_bytes() const {
        return c10::multiply_integers(shape) * static_cast<int64_t>(c10::elementSize(type));
    }
};

/// Lists the large tensors of this rank without allocating them: activations of a microbatch, gathered
/// weights and gradients of units, and weights, gradient and moments of each matrix. Equal layers are listed
/// once. A step also allocates tensors that are not in the list.
std::vector<LargeTensor> large_tensors(const train::TrainerOptions& options, const comm::Mesh& mesh);

/// Describes the tensors whose allocation requests `bytes`: "a layer's gate and up [16384, 37888] of
/// bfloat16". A size that LibTorch's GPU allocator has rounded up matches too. Empty if no tensor matches.
std::string names_of_size(std::span<const LargeTensor> tensors, int64_t bytes);

}  // namespace argosy::plan

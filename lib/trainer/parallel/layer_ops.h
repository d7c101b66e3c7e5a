// The operations of a program that compute: each calls a layer or the head once. They know no program and no
// sets: the caller gathers the weights and makes the sums of gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "model/block.h"
#include "model/layer.h"
#include "parallel/lowering.h"
#include "parallel/parallel_model.h"

namespace argosy::parallel {

/// The activations of one microbatch on one stage.
struct Slot {
    at::Tensor stream;               // [rows, dim]: the residual stream after the last layer that ran
    at::Tensor gradient;             // [rows, dim]: the gradient of the residual stream in the backward pass
    std::vector<model::Tape> tapes;  // by layer: tensors kept from forward to backward
    std::vector<model::WeightWork> weight_work;  // by layer: the weights' gradients still to compute
    std::vector<model::WeightWork> head_work;    // the head's, by chunk of tokens
};

struct LayerOp {
    UnitOpKind kind;
    Stage& stage;
    int unit;
    const model::Gradients* gradients;  // of Loss and BackwardWeight, else null
    const model::Weights* weights;      // null for BackwardWeight, which needs none
    const model::Batch& batch;
    model::RecomputeMode recompute;
    const at::Tensor& loss_weight;  // scalar in the accumulation type of the compute type
};

/// Returns the sum of losses [] of Loss and LossInput, else an undefined tensor.
at::Tensor run(const LayerOp& op, Slot& slot);

}  // namespace argosy::parallel

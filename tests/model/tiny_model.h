// Small models of every family with random weights, whose units run forward and backward on one device.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/block.h"
#include "model/head.h"
#include "model/layer.h"
#include "model/parameter.h"
#include "model/plain_model.h"
#include "model/tensor_axis.h"
#include "model/units.h"
#include "support/tensors.h"

namespace argosy::model {

/// Models with grouped queries and odd sizes: plain Llama, tied, QKV bias, QK-norm with a free head_dim,
/// biases everywhere, a sliding window, norms after each half with a window in every other layer,
/// Gemma's, heads of which a part rotates, and experts in all layers, in some, and with norms after them.
std::vector<ModelSpec> tiny_specs();

struct TinyModel {
    TinyModel(const ModelSpec& spec, at::ScalarType type, int64_t num_sequences, int64_t seq_len);

    /// All parameters of the model are adjacent in memory. A layer gets the joined tensors only if
    /// `tells_joins`.
    Weights weights(int unit) const;
    Gradients gradients(int unit);
    /// The weight of a loss as the head takes it.
    at::Tensor scalar(double value) const;

    /// Runs the whole model forward and backward: embedding, blocks, head. Adds the gradients to `sums`.
    at::Tensor loss_and_gradients(RecomputeMode mode, double scale);

    ModelSpec spec;
    at::ScalarType type;
    testing::RandomTensors random{7};
    std::vector<std::vector<Parameter>> units;
    NamedTensors values;                             // by name; a tied table once
    std::map<std::string, GradientSum> sums;         // likewise
    std::vector<Joined> joined_values, joined_sums;  // of each unit
    bool tells_joins = true;
    Batch batch;
    TensorAxis axis;
    ContextAxis context;
    ExpertAxis experts;
    RopeTables rope;
};

}  // namespace argosy::model

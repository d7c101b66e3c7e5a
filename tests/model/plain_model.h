// The model written a second time, as plainly as possible, for autograd: no shared code with lib/, whole
// matrices of scores and logits, rotary embedding by Hugging Face's rotate_half, parameters by their names in
// a checkpoint.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

#include "model/model_spec.h"

namespace argosy::model {

using NamedTensors = std::map<std::string, at::Tensor>;

/// What a layer's router makes of tokens [num_sequences, seq_len]: logits, scores, and 1 for the experts to
/// which a token goes, 0 for others; all [num_sequences, seq_len, experts].
struct PlainChoice {
    at::Tensor logits, scores, chosen;
};
using PlainChoices = std::map<int64_t, PlainChoice>;  // by layer

/// The rows of the table that begin the residual stream.
at::Tensor plain_embedding(const ModelSpec& spec, const at::Tensor& table, const at::Tensor& tokens);

/// x [num_sequences, seq_len, dim] through block number `layer`. Adds to `choices` that of its experts, whose
/// biases in the choice may be among the weights.
at::Tensor plain_block(const ModelSpec& spec, const NamedTensors& weights, int64_t layer, const at::Tensor& x,
                       PlainChoices* choices = nullptr);

/// Final norm, logits, and the sum of the counted tokens' losses; x [..., dim], targets [...].
at::Tensor plain_loss(const ModelSpec& spec, const NamedTensors& weights, const at::Tensor& x,
                      const at::Tensor& targets);

/// The loss of tokens [num_sequences, seq_len].
at::Tensor plain_model(const ModelSpec& spec, const NamedTensors& weights, const at::Tensor& tokens,
                       const at::Tensor& targets, PlainChoices* choices = nullptr);

}  // namespace argosy::model

// The units of a model: its parameters in sets that are gathered and reduced together, one for each layer and
// one for the head.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/model_spec.h"
#include "model/parameter.h"

namespace argosy::model {

/// The parameters of a model's units in the order of the forward pass: the embedding, each block, the head.
/// The matrix of a tied head has the name of the embedding's table.
std::vector<std::vector<Parameter>> unit_parameters(const ModelSpec& spec);

/// The names of a model's units: "embedding", "layers.0", ..., "head".
std::vector<std::string> unit_names(const ModelSpec& spec);

/// The parameters in the order of the forward pass. A tied table occurs once, in the embedding.
std::vector<layout::ParamSpec> model_parameters(const ModelSpec& spec);

/// The biases of experts in the choice of them (Weights::router_bias) as tensors of a model's files: one for
/// each layer with experts, by its number, "layers.0.moe.router.bias". They are no parameters: nothing
/// trains, shards, casts or counts them. Files without them mean biases of zero.
std::map<int64_t, layout::ParamSpec> router_biases(const ModelSpec& spec);
/// Whether `name` ends as the names of these.
bool is_router_bias(std::string_view name);

/// The number of elements of all parameters together; a tied table counts once.
int64_t num_parameters(const ModelSpec& spec);

}  // namespace argosy::model

// The units of a model: its parameters in sets that are gathered and reduced together, one for each layer and
// one for the head.
#pragma once

#include <cstdint>
#include <string>
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

/// The number of elements of all parameters together; a tied table counts once.
int64_t num_parameters(const ModelSpec& spec);

}  // namespace argosy::model

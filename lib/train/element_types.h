// The element types of weights and states, as the configuration, LibTorch and files call them.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "config/choices.h"
#include "h5/element_type.h"

namespace argosy::train {

at::ScalarType scalar_type(config::Precision precision);

/// REQUIRES: fp64, fp32, bf16 or fp16.
h5::ElementType element_type(at::ScalarType type);

/// Nothing for what no weight or state is made of.
std::optional<at::ScalarType> scalar_type(h5::ElementType type);

}  // namespace argosy::train

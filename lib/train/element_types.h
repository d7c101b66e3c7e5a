// The element types that LibTorch and files both have.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "h5/element_type.h"

namespace argosy::train {

/// REQUIRES: fp64, fp32, bf16 or fp16.
h5::ElementType element_type(at::ScalarType type);

/// Nothing for what no weight or state is made of.
std::optional<at::ScalarType> scalar_type(h5::ElementType type);

}  // namespace argosy::train

// Translates the element types of the configuration into those of the other modules and of LibTorch.
#pragma once

#include <c10/core/ScalarType.h>

#include "base/element_type.h"
#include "config/choices.h"

namespace argosy::setup {

ElementType element_type(config::Precision precision);
at::ScalarType scalar_type(config::Precision precision);

}  // namespace argosy::setup

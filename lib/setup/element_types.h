// Element types of weights and optimizer states: from the choices of the configuration.
#pragma once

#include <c10/core/ScalarType.h>

#include "base/element_type.h"
#include "config/choices.h"

namespace argosy::setup {

ElementType element_type(config::Precision precision);
at::ScalarType scalar_type(config::Precision precision);

}  // namespace argosy::setup

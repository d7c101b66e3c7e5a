// What the elements of tensors are to those who send them.
#pragma once

#include <c10/core/ScalarType.h>

#include "base/element_type.h"

namespace argosy::comm {

/// Throws RunError for elements that cannot be sent.
ElementType element_type(at::ScalarType type);

}  // namespace argosy::comm

// Maps LibTorch's element types to this program's.
#pragma once

#include <c10/core/ScalarType.h>

#include "base/element_type.h"

namespace argosy::comm {

/// Throws RunError for elements that cannot be sent.
ElementType element_type(at::ScalarType type);

}  // namespace argosy::comm

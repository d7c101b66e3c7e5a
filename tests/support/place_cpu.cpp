// Tensors of suites that name no other place.
#include "support/tensors.h"

namespace argosy::testing {

c10::Device place() { return c10::kCPU; }

}  // namespace argosy::testing

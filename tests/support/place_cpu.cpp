// Puts the tensors of a suite in host memory; the default.
#include "support/tensors.h"

namespace argosy::testing {

c10::Device place() { return c10::kCPU; }

}  // namespace argosy::testing

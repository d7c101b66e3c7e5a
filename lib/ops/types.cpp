#include "ops/types.h"

#include "gpu/device.h"

namespace argosy::ops {

int64_t largest_temporary(const at::Tensor& x) { return gpu::holds(x) ? 1 << 30 : 16 << 20; }

}  // namespace argosy::ops

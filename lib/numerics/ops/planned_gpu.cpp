#include "ops/planned_gpu.h"

#include <utility>

#include "gpu/device.h"

namespace argosy::ops {
namespace {

thread_local int planned = 0;

}  // namespace

PlannedGpu::PlannedGpu(int capability) : outer_(std::exchange(planned, capability)) {}
PlannedGpu::~PlannedGpu() { planned = outer_; }

int planned_capability() { return planned; }

bool counts_as_gpu(const at::Tensor& x) { return gpu::holds(x) || (x.is_meta() && planned > 0); }

}  // namespace argosy::ops

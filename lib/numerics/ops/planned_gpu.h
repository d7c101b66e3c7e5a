// Tensors without data (LibTorch's device meta) that count as a GPU's, for plans: operations then take the
// way of a GPU, with its results and temporary tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace argosy::ops {

/// While it exists, this thread's tensors without data count as those of a GPU of that compute capability, or
/// with 0 as a processor's.
class PlannedGpu {
  public:
    explicit PlannedGpu(int capability);
    PlannedGpu(const PlannedGpu&) = delete;
    ~PlannedGpu();

  private:
    int outer_;
};

/// The compute capability that tensors without data have on this thread; 0: a processor's.
int planned_capability();

/// Whether x is in a GPU's memory, or has no data and counts as if.
bool counts_as_gpu(const at::Tensor& x);

}  // namespace argosy::ops

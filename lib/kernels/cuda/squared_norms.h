#pragma once

#include <span>

#include "kernels/sums.h"
#include "kernels/types.h"

namespace argosy::kernels::cuda {

int64_t squared_norms_scratch_bytes(std::span<const SquaredNorm> tensors);
void squared_norms(std::span<const SquaredNorm> tensors, double* norms, void* scratch, GpuStream stream);

}  // namespace argosy::kernels::cuda

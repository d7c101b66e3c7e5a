#pragma once

#include <span>

#include "kernels/adamw.h"
#include "kernels/types.h"

namespace argosy::kernels::cuda {

void adamw(std::span<const AdamWRows> tensors, GpuStream stream);

}  // namespace argosy::kernels::cuda

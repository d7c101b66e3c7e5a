#pragma once

#include "kernels/rms_norm.h"
#include "kernels/types.h"

namespace argosy::kernels::cuda {

template <class T>
void rms_norm(const RmsNorm<T>& args, GpuStream stream);

}  // namespace argosy::kernels::cuda

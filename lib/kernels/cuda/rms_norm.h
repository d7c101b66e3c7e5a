#pragma once

#include "kernels/rms_norm.h"
#include "kernels/types.h"

namespace argosy::kernels::cuda {

template <class T>
void rms_norm(const RmsNorm<T>& args, GpuStream stream);

template <class T>
int64_t rms_norm_backward_scratch_bytes(const RmsNormBackward<T>& args);
template <class T>
void rms_norm_backward(const RmsNormBackward<T>& args, void* scratch, GpuStream stream);

}  // namespace argosy::kernels::cuda

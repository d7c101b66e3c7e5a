#pragma once

#include "kernels/swiglu.h"
#include "kernels/types.h"

namespace argosy::kernels::cuda {

template <class T>
void swiglu(const Swiglu<T>& args, GpuStream stream);
template <class T>
void swiglu_backward(const SwigluBackward<T>& args, GpuStream stream);

}  // namespace argosy::kernels::cuda

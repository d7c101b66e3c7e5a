#pragma once

#include "kernels/rope.h"
#include "kernels/types.h"

namespace argosy::kernels::cuda {

template <class T>
void rope(const Rope<T>& args, GpuStream stream);

}  // namespace argosy::kernels::cuda

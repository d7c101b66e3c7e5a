#pragma once

#include "kernels/convert.h"
#include "kernels/types.h"

namespace argosy::kernels::cuda {

template <class T>
void widen(const Widen<T>& args, GpuStream stream);
template <class T>
void narrow(const Narrow<T>& args, GpuStream stream);

}  // namespace argosy::kernels::cuda

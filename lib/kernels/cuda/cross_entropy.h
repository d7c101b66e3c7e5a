#pragma once

#include "kernels/cross_entropy.h"
#include "kernels/types.h"

namespace argosy::kernels::cuda {

template <class T>
void softmax_sums(const SoftmaxSums<T>& args, GpuStream stream);
template <class T>
void cross_entropy_gradient(const CrossEntropyGradient<T>& args, GpuStream stream);
template <class T>
void cross_entropy(const CrossEntropy<T>& args, GpuStream stream);

}  // namespace argosy::kernels::cuda

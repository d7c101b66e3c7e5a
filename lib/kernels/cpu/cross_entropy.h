#pragma once

#include "kernels/cross_entropy.h"
#include "kernels/types.h"

namespace argosy::kernels::ARGOSY_VARIANT {

template <class T>
void softmax_sums(const SoftmaxSums<T>& args);
template <class T>
void cross_entropy_gradient(const CrossEntropyGradient<T>& args);

}  // namespace argosy::kernels::ARGOSY_VARIANT

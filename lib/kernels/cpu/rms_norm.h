#pragma once

#include "kernels/rms_norm.h"
#include "kernels/types.h"

namespace argosy::kernels::ARGOSY_VARIANT {

template <class T>
void rms_norm(const RmsNorm<T>& args);
template <class T>
void rms_norm_backward(const RmsNormBackward<T>& args);

}  // namespace argosy::kernels::ARGOSY_VARIANT

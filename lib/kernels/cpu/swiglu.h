#pragma once

#include "kernels/swiglu.h"
#include "kernels/types.h"

namespace argosy::kernels::ARGOSY_VARIANT {

template <class T>
void swiglu(const Swiglu<T>& args);
template <class T>
void swiglu_backward(const SwigluBackward<T>& args);

}  // namespace argosy::kernels::ARGOSY_VARIANT

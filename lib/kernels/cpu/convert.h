#pragma once

#include "kernels/convert.h"
#include "kernels/types.h"

namespace argosy::kernels::ARGOSY_VARIANT {

template <class T>
void widen(const Widen<T>& args);
template <class T>
void narrow(const Narrow<T>& args);

}  // namespace argosy::kernels::ARGOSY_VARIANT

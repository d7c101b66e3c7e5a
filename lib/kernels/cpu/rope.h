#pragma once

#include "kernels/rope.h"
#include "kernels/types.h"

namespace argosy::kernels::ARGOSY_VARIANT {

template <class T>
void rope(const Rope<T>& args);

}  // namespace argosy::kernels::ARGOSY_VARIANT

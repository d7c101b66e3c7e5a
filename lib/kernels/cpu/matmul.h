#pragma once

#include "kernels/matmul.h"
#include "kernels/types.h"

namespace argosy::kernels::ARGOSY_VARIANT {

template <class T, class Sum>
void matmul(const Matmul<T, Sum>& args);

}  // namespace argosy::kernels::ARGOSY_VARIANT

#pragma once

#include "kernels/sums.h"
#include "kernels/types.h"

namespace argosy::kernels::ARGOSY_VARIANT {

template <class T>
void sum_rows(const SumRows<T>& args);
double squared_norm(const SquaredNorm& args);

}  // namespace argosy::kernels::ARGOSY_VARIANT

#pragma once

#include "kernels/attention.h"
#include "kernels/types.h"

namespace argosy::kernels::ARGOSY_VARIANT {

template <class T>
void attention(const Attention<T>& args);
template <class T>
void attention_backward(const AttentionBackward<T>& args);

}  // namespace argosy::kernels::ARGOSY_VARIANT

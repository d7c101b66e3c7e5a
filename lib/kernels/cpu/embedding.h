#pragma once

#include "kernels/embedding.h"
#include "kernels/types.h"

namespace argosy::kernels::ARGOSY_VARIANT {

template <class T>
void embedding(const Embedding<T>& args);
template <class T>
void embedding_gradient(const EmbeddingGradient<T>& args);

}  // namespace argosy::kernels::ARGOSY_VARIANT

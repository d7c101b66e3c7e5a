#pragma once

#include "kernels/embedding.h"
#include "kernels/types.h"

namespace argosy::kernels::cuda {

template <class T>
void embedding(const Embedding<T>& args, GpuStream stream);
template <class T>
void embedding_gradient(const EmbeddingGradient<T>& args, const int64_t* positions, GpuStream stream);

}  // namespace argosy::kernels::cuda

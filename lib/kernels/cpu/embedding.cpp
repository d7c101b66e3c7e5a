#include "kernels/cpu/kernels.h"

#include "kernels/cpu/vector.h"

namespace argosy::kernels::ARGOSY_VARIANT {

template <class T>
void embedding(const Embedding<T>& args) {
    const auto row_bytes = static_cast<uint64_t>(args.row_size) * sizeof(T);
    for (int64_t i = 0; i < args.num_tokens; ++i) {
        const int64_t row = args.tokens[i] - args.begin;
        T* x = args.x + i * args.row_size;
        if (row >= 0 && row < args.num_rows) {
            __builtin_memcpy(x, args.table + row * args.row_size, row_bytes);
        } else {
            __builtin_memset(x, 0, row_bytes);
        }
    }
}

template <class T>
void embedding_gradient(const EmbeddingGradient<T>& args) {
    for (int64_t i = 0; i < args.num_tokens; ++i) {
        const int64_t row = args.tokens[i] - args.begin;
        if (row < 0 || row >= args.num_rows) continue;
        const T* dx = args.dx + i * args.row_stride;
        float* sums = args.sums + row * args.row_stride;
        for_each_vector(args.row_size, [&](int64_t k, auto load, auto store) {
            store(sums + k, load(sums + k) + load(dx + k));
        });
    }
}

template void embedding(const Embedding<float>&);
template void embedding(const Embedding<BFloat16>&);
template void embedding(const Embedding<Half>&);
template void embedding_gradient(const EmbeddingGradient<float>&);
template void embedding_gradient(const EmbeddingGradient<BFloat16>&);
template void embedding_gradient(const EmbeddingGradient<Half>&);

}  // namespace argosy::kernels::ARGOSY_VARIANT

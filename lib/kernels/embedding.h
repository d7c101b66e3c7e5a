// Looks up rows of a table by token; the table holds rows [begin, begin + num_rows) of the whole one. Each
// row is read and written once. The gradient reads and writes a row of the sums each time its token occurs.
#pragma once

#include <cstdint>

namespace argosy::kernels {

template <class T>
struct Embedding {
    int64_t num_tokens, row_size, begin, num_rows;
    const int64_t* tokens;
    const T* table;
    T* x;  // [num_tokens, row_size]; zeros for tokens outside
};

/// sums[token - begin] += dx of each token in turn.
template <class T>
struct EmbeddingGradient {
    int64_t num_tokens, row_size, begin, num_rows;
    int64_t row_stride;  // elements from a row to the next, of dx and of sums; row_size may be part of it
    const int64_t* tokens;
    const T* dx;
    float* sums;
};

}  // namespace argosy::kernels

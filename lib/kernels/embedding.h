// Rows of a table by token, of which these are rows [begin, begin + num_rows). Each row is read and written
// once; the gradient reads and writes the sums' rows as often as their tokens occur.
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
    int64_t row_stride;  // elements from a row to the next, of dx and of sums; row_size may be part of a row
    const int64_t* tokens;
    const T* dx;
    float* sums;
};

}  // namespace argosy::kernels

// The arguments of the kernels that go over their data once, each bound by memory: conversions, rotary
// position embedding, SwiGLU, sums over rows, and the embedding table.
#pragma once

#include <cstdint>

namespace argosy::kernels {

// Conversions between an element type and float: widening is exact, narrowing rounds to nearest, ties to
// even. All kernels load and store through them; they are also kernels themselves, so that tests can check
// exact values.

template <class T>
struct Widen {
    int64_t count;
    const T* from;
    float* to;
};

template <class T>
struct Narrow {
    int64_t count;
    const float* from;
    T* to;
};

// Rotary position embedding: elements i and i + half of a head are a pair, which is rotated by the i-th angle
// of its position. Each element is read and written once and takes 3 FLOP; the table of angles stays in
// cache.

enum class Turn { Forward, Back };

template <class T>
struct Rope {
    int64_t num_rows, num_heads, half;  // a row: num_heads x 2 x half elements
    int64_t first_row, seq_len;         // row i has position (first_row + i) % seq_len
    Turn turn;
    const float* cos;  // [seq_len, half]
    const float* sin;
    const T* x;
    int64_t x_stride;  // elements between the starts of two rows
    T* y;              // may be x
    int64_t y_stride;
};

// y = silu(gate) * up with silu(g) = g / (1 + exp(-g)). Gate and up are columns of matrices, so their rows
// need not be contiguous; y and dy are dense. Forward reads two elements and writes one, backward reads three
// and writes two: bound by memory in bf16, nearly so in fp32 (about 20 FLOP for the exponential).

template <class T>
struct Swiglu {
    int64_t num_rows, row_size;
    const T* gate;
    const T* up;
    int64_t stride;  // of gate and up: elements between the starts of two rows
    T* y;
};

template <class T>
struct SwigluBackward {
    int64_t num_rows, row_size;
    const T* dy;
    const T* gate;
    const T* up;
    T* dgate;
    T* dup;
    int64_t stride;  // of all but dy
};

// Sums over rows, and of squares.

/// sums[i] += x[row][i], row by row.
template <class T>
struct SumRows {
    int64_t num_rows, row_size;
    int64_t row_stride;  // elements between the starts of two rows
    const T* x;
    float* sums;
};

/// The sum of squares in fp64, where squares of floats are exact and none overflows: the same bits on every
/// instruction set.
struct SquaredNorm {
    int64_t count;
    const float* x;
};

// Looks up rows of a table by token; the table holds rows [begin, begin + num_rows) of the whole one. Each
// row is read and written once. The gradient reads and writes a row of the sums each time its token occurs.

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
    int64_t
        row_stride;  // elements between the starts of two rows, of dx and of sums; row_size may be part of it
    const int64_t* tokens;
    const T* dx;
    float* sums;
};

}  // namespace argosy::kernels

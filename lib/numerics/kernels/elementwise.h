// The arguments of the kernels that read their data once and are bound by memory: conversions, rotary
// position embedding, gated linear units, sums over rows, sums of squares, the embedding table, and sums of a
// token's rows.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace argosy::kernels {

// Conversions between an element type and float: widening is exact, narrowing rounds to nearest, ties to
// even. Every kernel converts in the same way when it loads and stores.

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

// Rotary position embedding: elements i and i + half of a head are a pair. The i-th angle of the row's
// position rotates the pair. Each of these elements is read and written once and takes 3 FLOP; the table of
// angles stays in cache.

enum class Rotation { Forward, Backward };

template <class T>
struct Rope {
    int64_t num_rows, num_heads, half;  // a row: num_heads x (2 x half + num_unrotated) elements
    int64_t first_row, seq_len;         // without `positions`, row i has position (first_row + i) % seq_len
    Rotation rotation;
    const float* cos;  // [seq_len, half]
    const float* sin;
    const T* x;
    int64_t x_stride;  // elements between the starts of two rows
    T* y;              // may be x
    int64_t y_stride;
    const int64_t* positions = nullptr;  // [num_rows], each in [0, seq_len)
    int64_t num_unrotated = 0;           // the last elements of a head: y gets those of x
};

// Gated linear units (GLU): y = activation(gate) * up. Gate and up are columns of matrices, so their rows may
// have gaps between them; y and dy are dense. Forward reads two elements and writes one, backward reads three
// and writes two; the exponential takes about 20 FLOP. A row may have a weight, by which y is multiplied; the
// gradient of the weight is the sum over the row of dy y without the weight.

/// Silu (SwiGLU): silu(g) = g / (1 + exp(-g)) = g sigmoid(g).
/// GeluTanh (GeGLU): gelu(g) = g / 2 (1 + tanh(u)) with u = sqrt(2 / pi) (g + 0.044715 g^3). It is computed
/// as g sigmoid(a) with a = 2 u, which is the same and loses no bits where tanh(u) is near -1.
enum class Activation { Silu, GeluTanh };

/// GeluTanh's a = kGeluLinear g + kGeluCubic g^3.
inline constexpr double kGeluLinear = 1.5957691216057308, kGeluCubic = 0.044715 * kGeluLinear;

template <class T>
struct Glu {
    Activation activation;
    int64_t num_rows, row_size;
    const T* gate;
    const T* up;
    int64_t stride;  // of gate and up: elements between the starts of two rows
    T* y;
    const float* weights = nullptr;  // [num_rows]; null: ones
};

template <class T>
struct GluBackward {
    Activation activation;
    int64_t num_rows, row_size;
    const T* dy;
    const T* gate;
    const T* up;
    T* dgate;
    T* dup;
    int64_t stride;                  // of gate, up, dgate and dup
    const float* weights = nullptr;  // [num_rows]; null: ones, without dweights
    float* dweights = nullptr;       // [num_rows]
};

// Sums over rows, and sums of squares.

/// sums[i] += x[row][i], row by row.
template <class T>
struct SumRows {
    int64_t num_rows, row_size;
    int64_t row_stride;  // elements between the starts of two rows
    const T* x;
    float* sums;
};

/// The sum of squares in fp64, where the squares of floats are exact and do not overflow. The CPU kernels of
/// all instruction sets add in the same order, so they return the same bits.
struct SquaredNorm {
    int64_t count;
    const float* x;
    const BFloat16* bf16_x = nullptr;  // the numbers in bf16; null: they are in fp32
};

// The embedding table: each token selects a row. `table` holds rows [begin, begin + num_rows) of the whole
// table. The look-up reads and writes one row per token. The gradient reads and writes a row of the sums once
// per occurrence of its token on a CPU, and once per distinct token on a GPU.

template <class T>
struct Embedding {
    int64_t num_tokens, row_size, begin, num_rows;
    const int64_t* tokens;
    const T* table;
    T* x;  // [num_tokens, row_size]; zeros for tokens whose row is not in `table`
};

/// sums[token - begin] += dx of each token in turn.
template <class T>
struct EmbeddingGradient {
    int64_t num_tokens, row_size, begin, num_rows;
    /// Elements between the starts of two rows, in dx and in sums. row_size may be smaller: then a call
    /// covers only some columns.
    int64_t row_stride;
    const int64_t* tokens;
    const T* dx;
    float* sums;
};

/// x[token] = the sum of its slots' rows of y, in the order of the slots, rounded once. Each row is read
/// once.
template <class T>
struct Combine {
    int64_t num_tokens, row_size, num_slots;
    const int32_t* rows;  // [num_tokens, num_slots]
    const T* y;
    T* x;
};

}  // namespace argosy::kernels

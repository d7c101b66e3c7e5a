// The arguments of the kernels that cast a matrix to float8: the largest magnitudes of its groups of
// elements, from which scales follow, then the cast itself; and of the kernel that widens float8 again.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace argosy::kernels {

/// A matrix in which the elements of a group share a scale. A group has some adjacent rows and columns.
/// REQUIRES: the groups divide the rows and the columns. On a GPU a group is a row, a column or the matrix,
/// but for CastBlocks.
template <class T>
struct Grouped {
    const T* x;
    int64_t num_rows, row_size;
    int64_t row_stride;  // elements between the starts of two rows
    int64_t group_rows, group_columns;
};

/// For each group the largest magnitude; NaN if one of its elements is. Reads each element once.
template <class T>
struct LargestMagnitudes {
    Grouped<T> matrix;
    float* largest;          // of each group, row by row
    int64_t largest_stride;  // between the first groups of two rows of groups
};

/// The scales of casts: factors[i] = type_largest / largest[i], in fp64, rounded once; scales[i] is its
/// reciprocal.
struct Float8Scales {
    int64_t count;
    const float* largest;
    float type_largest;  // the largest number of the type
    double min_largest;  // replaces smaller magnitudes, so that a matrix of zeros has a finite factor
    bool power_of_two;   // factors are rounded down to powers of two
    float* factors;
    float* scales;
};

enum class Float8Type { E4M3, E5M2 };

/// values = x * the factor of its group, rounded to nearest, ties to even; what is too large, infinities too,
/// becomes the type's largest number.
template <class T>
struct CastToFloat8 {
    Grouped<T> matrix;
    const float* factors;  // as LargestMagnitudes::largest
    int64_t factor_stride;
    Float8Type type;
    uint8_t* values;
    int64_t value_stride;  // between the starts of two rows
};

/// The scales and the cast to E4M3 of blocks, in one pass over x, on a GPU: blocks of 32 or 128 elements of a
/// row or of a column, or of 128 x 128. A scale is the power of two 2^floor(log2(largest)) / 2^8, but at
/// least 2^-127, where `largest` is the block's largest magnitude; or with `round_up` the least from 2^-126
/// on that is not below largest / 448 in fp32, or 2^-127 if that is 0. The exponent + 127, from 0 to 254, is
/// stored. x is multiplied by the scale's reciprocal, but by 2^126 at most. If `largest` is NaN or infinite,
/// 255 is stored, the scale NaN, and the values do not matter.
template <class T>
struct CastBlocks {
    Grouped<T> matrix;
    bool round_up;
    uint8_t* exponents;  // E8M0, of each block, row by row
    int64_t exponent_stride;
    uint8_t* values;
    int64_t value_stride;
};

/// The transpose of a cast, [row_size, num_rows], in the memory of a GPU.
struct TransposedFloat8 {
    uint8_t* values = nullptr;
    int64_t stride = 0;  // between the starts of two of its rows
};

/// Writes the transpose of a matrix of one-byte elements, in the memory of a GPU.
struct TransposeBytes {
    const uint8_t* from;
    int64_t num_rows, row_size;
    int64_t row_stride;
    TransposedFloat8 transposed;
};

/// Exact, also to bf16.
struct WidenFloat8 {
    int64_t count;
    const uint8_t* from;
    Float8Type type;
    BFloat16* to;
};

}  // namespace argosy::kernels

// Matrix products: C = factor times the sum of A B over all products, plus a bias, plus addend_factor times a
// matrix if given, rounded to C's type once at the end.
//
// Cost: 2 FLOP per row, column and k. The kernel is bound by arithmetic, because it packs operands into
// panels that stay in cache. Sums are fp32, over blocks of k of a fixed size, one block after the other. An
// element of C therefore has the same bits whatever part of C a call computes.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace argosy::kernels {

template <class T>
struct Product {
    Operand<T> a, b;  // [rows, k] and [k, columns]
    int64_t k;
};

template <class T, class Sum>
struct Matmul {
    const Product<T>* products;
    int64_t num_products;
    int64_t row_begin, row_end, column_begin, column_end;  // the part of C to compute
    Sum* c;                                                // element [row, column] at row * c_stride + column
    int64_t c_stride;
    /// Element [row, column] at row * addend_stride + column; null: none. C itself: C += the products.
    const Sum* addend = nullptr;
    int64_t addend_stride = 0;
    /// Element [column] of what is added to every row; null: none.
    const Sum* bias = nullptr;
    float factor = 1, addend_factor = 1;
};

}  // namespace argosy::kernels

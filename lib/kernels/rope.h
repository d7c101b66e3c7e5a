// Rotary position embedding: elements i and i + half of a head are a pair, which is rotated by the i-th angle
// of its position. Each element is read and written once and takes 3 FLOP; the table of angles stays in
// cache.
#pragma once

#include <cstdint>

namespace argosy::kernels {

enum class Turn { Forward, Back };

template <class T>
struct Rope {
    int64_t num_rows, num_heads, half;  // a row: num_heads x 2 x half elements
    int64_t first_row, seq_len;         // row i has position (first_row + i) % seq_len
    Turn turn;
    const float* cos;  // [seq_len, half]
    const float* sin;
    const T* x;
    int64_t x_stride;  // elements from a row to the next
    T* y;              // may be x
    int64_t y_stride;
};

}  // namespace argosy::kernels

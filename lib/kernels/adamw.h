// One AdamW update of elements that lie in a row, in one pass:
//   g = gradient * gradient_factor
//   m = m + (g - m) (1 - beta1),  v = v beta2 + g^2 (1 - beta2)
//   w = w decay_factor - m / (sqrt(v) root_factor + eps) * step_size
// Each operation rounds as written (no fused multiply-add), so that every instruction set gives the same
// bits. What is kept in bf16 is rounded stochastically (optim/stochastic_rounding.h has the definition).
//
// Some 14 FLOP an element for 28 bytes of memory in fp32 (16 read, 12 written), 30 with a bf16 copy, 16 with
// everything but the gradient in bf16: bound by memory but for the random bits, about 3 operations for each.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace argosy::kernels {

/// A row of numbers in one of two types; the other pointer is null.
struct FloatOrBFloat16 {
    float* fp32;
    BFloat16* bf16;
    uint32_t rounding_key[2];  // for bf16
};

struct AdamW {
    int64_t size;
    uint64_t first_element;  // its number in the whole parameter, for rounding
    uint64_t update_number;  // likewise
    const float* gradient;
    FloatOrBFloat16 weights, first_moments, second_moments;
    BFloat16* bf16_copy;  // of the weights for computation, rounded to nearest; null: none
    Half* fp16_copy;      // likewise
    float gradient_factor, decay_factor, step_size, root_factor, beta2;
    float one_minus_beta1, one_minus_beta2, eps;
};

/// Elements of a parameter that lie one after the other in memory, and in rows in the whole of it: element i
/// has the number update.first_element + i / row_length * row_stride + i % row_length there.
struct AdamWRows {
    AdamW update;
    int64_t row_length, row_stride;
};

}  // namespace argosy::kernels

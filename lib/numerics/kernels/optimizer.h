// The kernels of the optimizer's tensors: sums of gradients in bf16, and AdamW. Values kept in bf16 are
// rounded stochastically (ops/stochastic_rounding.h has the definition). Each operation rounds as written (no
// fused multiply-add), so that every instruction set gives the same bits.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace argosy::kernels {

/// Contiguous numbers in one of two types; the other type's pointer is null.
struct FloatOrBFloat16 {
    float* fp32;
    BFloat16* bf16;
    uint32_t rounding_key[2];  // for bf16
};

/// One AdamW update of contiguous elements, in one pass:
///   g = gradient * gradient_factor
///   m = m + (g - m) (1 - beta1),  v = v beta2 + g^2 (1 - beta2)
///   w = w decay_factor - m / (sqrt(v) root_factor + eps) * step_size
///
/// Cost: about 14 FLOP per element. The memory traffic is 28 bytes in fp32 (16 read, 12 written), 30 bytes
/// with a bf16 copy, and 14 bytes with everything in bf16. Memory is the limit, unless values are kept in
/// bf16: the random bits of each such value take about 8 more operations (10 rounds of 6 operations for 8
/// values).
struct AdamW {
    int64_t size;
    uint64_t first_element;  // number of element 0 in the whole parameter, for rounding
    uint64_t update_number;  // for rounding
    const float* gradient;
    const BFloat16* bf16_gradient;  // the gradient in bf16; null: it is in fp32
    FloatOrBFloat16 weights, first_moments, second_moments;
    BFloat16* bf16_copy;  // copy of the weights for computation, rounded to nearest; null: none
    float gradient_factor, decay_factor, step_size, root_factor, beta2;
    float one_minus_beta1, one_minus_beta2, eps;
};

/// An update of elements that are contiguous in memory, but belong to rows of the whole parameter. Element i
/// has the number update.first_element + i / row_length * row_stride + i % row_length in the whole parameter.
struct AdamWRows {
    AdamW update;
    int64_t row_length, row_stride;
};

/// Contiguous elements of a sum in bf16: sum + term, or `term` without `accumulate`, is computed in fp32 and
/// rounded stochastically.
///
/// Cost: 8 bytes of memory traffic per element (6 read, 2 written), 6 bytes without `accumulate`.
struct AddRounded {
    int64_t size;
    uint64_t first_element;  // number of element 0 in the whole parameter
    /// The rounding has the number *first_number + number. A GPU reads *first_number from its memory.
    const uint64_t* first_number;
    uint64_t number;
    uint32_t rounding_key[2];
    bool accumulate;
    const float* term;  // REQUIRES: a NaN is quiet, as arithmetic makes it
    BFloat16* sum;
};

/// An addition to elements that are rows of the whole parameter, as in AdamWRows.
struct AddRoundedRows {
    AddRounded addition;
    int64_t row_length, row_stride;
};

}  // namespace argosy::kernels

// Softmax cross-entropy over columns [begin, begin + num_columns) of a vocabulary. One pass over the logits
// computes the sums of each row; another pass overwrites the logits with the gradient. Each pass takes one
// exponential (20 FLOP) for each element.
#pragma once

#include <cstdint>

namespace argosy::kernels {

template <class T>
struct SoftmaxSums {
    int64_t num_rows, num_columns, begin;
    const T* logits;
    const int64_t* targets;
    float* maxima;
    float* exponentials;   // the sum of exp(logit - maximum)
    float* target_logits;  // 0 where the target lies outside these columns
};

template <class T>
struct CrossEntropyGradient {
    int64_t num_rows, num_columns, begin;
    const int64_t* targets;  // negative: the row's gradient is zero
    const float* maxima;
    const float* exponentials;
    const float* scale;  // one number
    T* logits;           // becomes scale * (softmax - [column is target])
};

/// SoftmaxSums and CrossEntropyGradient in one kernel, for logits that cover the whole vocabulary. Only GPUs
/// have this kernel: the second pass over a row finds part of the row in the cache.
template <class T>
struct CrossEntropy {
    int64_t num_rows, num_columns;
    const int64_t* targets;
    const float* scale;  // one number
    T* logits;           // become the gradient
    float* maxima;       // maxima, exponentials and target_logits: as in SoftmaxSums
    float* exponentials;
    float* target_logits;
};

}  // namespace argosy::kernels

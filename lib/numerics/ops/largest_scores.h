// The largest attention score of each head, exact above a threshold.
//
// A query's log-sum-exp is at least its largest score, and above it by at most the logarithm of the number of
// keys. So only a query whose log-sum-exp is above the threshold, and above the scores that were found, can
// have a larger score: the scores of these queries alone are computed once more.
#pragma once

#include "ops/attention.h"

namespace argosy::ops {

/// Raises shape.watch.largest, in place, to the scores above the threshold. `log_sum_exp` is what attention()
/// or attention_part() gave for the other arguments: for a part of the keys, it is at least the largest score
/// of that part. No number of a GPU is read on the host, so that a graph can record the pass. REQUIRES: not
/// fp64 on a GPU.
void raise_largest_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& log_sum_exp,
                          const AttentionShape& shape, const at::Tensor& positions);

}  // namespace argosy::ops

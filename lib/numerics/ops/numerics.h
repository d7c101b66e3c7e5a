// Rules that all operations follow: the accumulation type, the size of temporary tensors, and how results
// become repeatable. Operations accept fp64, fp32 and bf16. Inside an operation, sums and transcendental
// functions run in the accumulation type, and the result is rounded once at the end.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace argosy::ops {

/// fp64 for fp64, fp32 for everything else.
inline at::ScalarType accumulation_type(at::ScalarType type) {
    return type == at::kDouble ? at::kDouble : at::kFloat;
}

/// Returns x in its accumulation type; x itself if it already has that type.
inline at::Tensor widened(const at::Tensor& x) { return x.to(accumulation_type(x.scalar_type())); }

/// Maximum number of elements that a temporary tensor on the device of x should have. On a processor, such a
/// tensor stays near the caches. On a GPU, such large tensors (2 GiB in bf16) mean few passes over the
/// weights.
int64_t max_temporary_elements(const at::Tensor& x);

/// The number of rows that are processed at a time, if at most about `max_rows` of `num_rows` are. All parts
/// are about equal, and all but the last one are multiples of 256 rows, so that matrix products have few
/// different shapes and fill their tiles.
int64_t rows_at_once(int64_t num_rows, int64_t max_rows);

/// Makes results repeatable for the rest of the process. REQUIRES: CUDA has not started, because the function
/// sets CUBLAS_WORKSPACE_CONFIG unless the environment has it.
/// 1. An operation that cannot repeat its bits throws.
/// 2. New memory is filled (floating point with NaN) instead of left uninitialised.
/// 3. The number of threads is fixed to its current value, which is returned. Otherwise libraries use fewer
///    threads for small work or on a busy machine, and the number of threads determines how a sum is split.
/// Between GPUs, NCCL's choice of algorithm determines the order of a sum. The order is the same for the same
/// version, settings and placement of ranks.
int make_deterministic();

}  // namespace argosy::ops

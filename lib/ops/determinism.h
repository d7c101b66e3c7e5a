// LibTorch's own switch for repeatable results, and cuBLAS's.
#pragma once

namespace argosy::ops {

/// For the rest of the process: an operation that cannot repeat its bits throws, memory comes filled
/// (floating point with NaN) instead of with what lay there, and the number of threads stays what it is now,
/// which is returned: libraries otherwise take fewer for small work or on a busy machine, and sums are cut by
/// threads. Sets CUBLAS_WORKSPACE_CONFIG unless somebody has: to be called before CUDA starts. Between GPUs
/// NCCL adds up in an order that its choice of algorithm fixes: the same for the same version, settings and
/// places of ranks.
int make_deterministic();

}  // namespace argosy::ops

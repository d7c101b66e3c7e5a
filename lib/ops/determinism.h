// Repeatable results: sets the switches of LibTorch and cuBLAS.
#pragma once

namespace argosy::ops {

/// Makes results repeatable for the rest of the process. REQUIRES: CUDA has not started, because the function
/// sets CUBLAS_WORKSPACE_CONFIG unless the environment has it.
/// 1. An operation that cannot repeat its bits throws.
/// 2. New memory is filled (floating point with NaN) instead of uninitialised.
/// 3. The number of threads is fixed to its current value, which is returned. Otherwise libraries use fewer
///    threads for small work or on a busy machine, and the threads determine how a sum is cut.
/// Between GPUs, NCCL adds in an order that its choice of algorithm determines: the order is the same for the
/// same version, settings and placement of ranks.
int make_deterministic();

}  // namespace argosy::ops

// Finds the fastest of several algorithms for a product by running them.
#pragma once

#include <span>
#include <vector>

#include "cublas/choices.h"
#include "cublas/with_cuda/plan.h"
#include "cuda/stream.h"

namespace argosy::cublas {

/// Runs each algorithm several times on the request's matrices and waits for the stream. If the product adds
/// to D, D must be scratch memory; otherwise D holds the product, or garbage. Algorithms that cuBLASLt
/// refuses are skipped; if it refuses all, the first one is returned.
Algorithm fastest(Plan& plan, cublasLtContext* handle, std::span<const Algorithm> algorithms,
                  const Request& request, std::span<std::byte> workspace, const cuda::StreamView& stream);

}  // namespace argosy::cublas

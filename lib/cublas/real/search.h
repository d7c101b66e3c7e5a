// Which of several algorithms is the fastest for a product, found by running them.
#pragma once

#include <span>
#include <vector>

#include "cublas/choices.h"
#include "cublas/real/plan.h"
#include "cuda/stream.h"

namespace argosy::cublas {

/// Runs each of the algorithms some times on the request's matrices and waits for the stream. D holds the
/// product, or garbage, where nothing is added to it; else it must be scratch memory. Algorithms that refuse
/// are passed over; where all do, the first is returned.
Algorithm fastest(Plan& plan, cublasLtContext* handle, std::span<const Algorithm> algorithms,
                  const Request& request, std::span<std::byte> workspace, const cuda::StreamView& stream);

}  // namespace argosy::cublas

// A ProductPlan holds the cuBLASLt descriptors and the algorithm of a problem, and launches its products.
// check() and explain() handle cuBLASLt's errors.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "cublas/problem.h"
#include "cuda/stream.h"

namespace argosy::cublas {

struct DestroyHandle {
    void operator()(cublasLtContext* handle) const { cublasLtDestroy(handle); }
};
using Handle = std::unique_ptr<cublasLtContext, DestroyHandle>;

class ProductPlan {
  public:
    /// For the operands' problem. launch() sets the pointers of each product.
    explicit ProductPlan(const Operands& operands);
    ProductPlan(const ProductPlan&) = delete;  // the descriptors stay where they were made
    ProductPlan& operator=(const ProductPlan&) = delete;

    /// Takes algorithm number `choice` of those that cuBLASLt's heuristic names and the problem allows.
    /// Returns cuBLASLt's status.
    cublasStatus_t find_algorithm(cublasLtContext* handle, size_t workspace_bytes, int choice);

    /// Queues the product on the stream; returns cuBLASLt's status. REQUIRES: find_algorithm() has succeeded.
    cublasStatus_t launch(cublasLtContext* handle, const Operands& operands, std::span<std::byte> workspace,
                          CUstream_st* stream);

  private:
    void set_pointers(const Operands& operands);

    Problem problem_;
    cublasLtMatmulDescOpaque_t operation_;
    cublasLtMatrixLayoutOpaque_t a_, b_, d_;
    cublasLtMatmulAlgo_t algorithm_{};
};

/// Sets D to zero, or to the addend, which is the result if k = 0.
void write_empty_sum(const Operands& operands, const cuda::StreamView& stream);

/// Returns cuBLASLt's name and text of a status, and advice: "CUBLAS_STATUS_... (...); use smaller sizes".
std::string explain(int status);

/// Throws RunError, which names `call`, unless `status` is CUBLAS_STATUS_SUCCESS.
void check(int status, const char* call);

}  // namespace argosy::cublas

// A ProductPlan holds the cuBLASLt descriptors of a problem: it finds algorithms for the problem and launches
// its products. by_time() compares algorithms; check() and explain() handle cuBLASLt's errors.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cublas/choices.h"
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

    /// Adds at most `max_algorithms` to `found`, the one that cuBLASLt expects to be fastest first. Returns
    /// cuBLASLt's status.
    cublasStatus_t find_algorithms(cublasLtContext* handle, size_t workspace_bytes, int max_algorithms,
                                   std::vector<Algorithm>& found);

    /// Adds to `found` the algorithms next to this one that support the problem: they differ from it in one
    /// thing: the parts along k (their number, and how they are added up), the tile of a block, or the
    /// cluster of blocks. Skips what `found` has.
    void add_neighbours(cublasLtContext* handle, const Algorithm& algorithm, size_t workspace_bytes,
                        std::vector<Algorithm>& found);

    /// Whether the algorithm supports this problem on this device with a workspace of this size.
    bool supports(cublasLtContext* handle, const Algorithm& algorithm, size_t workspace_bytes);

    /// Queues the product on the stream; returns cuBLASLt's status.
    cublasStatus_t launch(cublasLtContext* handle, const Algorithm& algorithm, const Operands& operands,
                          std::span<std::byte> workspace, CUstream_st* stream);

  private:
    void set_pointers(const Operands& operands);

    Problem problem_;
    cublasLtMatmulDescOpaque_t operation_;
    cublasLtMatrixLayoutOpaque_t a_, b_, d_;
};

/// Sorts algorithms for a product by their time, the fastest first: the few fastest of those that it has
/// tried after `max_seconds`, at least one, without those that cuBLASLt refuses. Runs them on the operands'
/// matrices and waits for the stream. REQUIRES: D is scratch memory if the product adds to D. Otherwise D
/// holds the product, or garbage, afterwards.
std::vector<Algorithm> by_time(ProductPlan& plan, cublasLtContext* handle,
                               std::span<const Algorithm> algorithms, const Operands& operands,
                               std::span<std::byte> workspace, const cuda::StreamView& stream,
                               double max_seconds);

/// Sets D to zero, or to the addend, which is the result if k = 0.
void write_empty_sum(const Operands& operands, const cuda::StreamView& stream);

/// Returns cuBLASLt's name and text of a status, and advice: "CUBLAS_STATUS_... (...); use smaller sizes".
std::string explain(int status);

/// Throws RunError, which names `call`, unless `status` is CUBLAS_STATUS_SUCCESS.
void check(int status, const char* call);

}  // namespace argosy::cublas

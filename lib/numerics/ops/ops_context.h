// A thread holds an OpsContext while it calls operations. The OpsContext selects how operations compute,
// owns the state of matrix products on a GPU, and switches off LibTorch's autograd, which is not used.
// This header also sets the number of threads of an operation.
#pragma once

#include <c10/core/InferenceMode.h>

#include <functional>
#include <memory>
#include <utility>

#include "cublas/matmul.h"

namespace argosy::ops {

/// How operations compute.
enum class Path {
    Fused,     // Argosy's kernels if they support type and device; one kernel may compute several operations
    Separate,  // the same kernels without fusion (except a product and its addend): the same bits in more
               // passes
    Plain,     // compositions of LibTorch's operations: for comparison, debugging, and as reference in tests
};

/// The path of this thread: that of its innermost OpsContext, or Fused if it has none.
Path path();

class OpsContext {
  public:
    explicit OpsContext(Path path = Path::Fused);
    OpsContext(const OpsContext&) = delete;
    ~OpsContext();

    /// Multiplies matrices on this thread's GPU. The thread's outermost OpsContext owns the Multiplier.
    cublas::Multiplier& multiplier();

    /// Lets cuBLASLt choose products on a GPU, from now on, for the multiprocessors that collectives leave:
    /// every product calls `multiprocessors`. REQUIRES: this is the thread's outermost OpsContext.
    void choose_products_for(std::function<int()> multiprocessors) {
        product_multiprocessors_ = std::move(multiprocessors);
    }

  private:
    friend Path path();
    friend int product_multiprocessors();
    const OpsContext& outermost() const { return outer_ == nullptr ? *this : outer_->outermost(); }

    c10::InferenceMode guard_;
    OpsContext* outer_;  // next outer OpsContext of this thread; null if this one is the outermost
    Path path_;
    std::unique_ptr<cublas::Multiplier> multiplier_;  // made when first needed
    std::function<int()> product_multiprocessors_;    // empty: all
};

/// The multiplier of this thread. REQUIRES: the thread holds an OpsContext.
cublas::Multiplier& multiplier();
/// cublas::Product::max_multiprocessors of the next product of this thread.
int product_multiprocessors();

/// Sets how many threads share an operation's loops, from now on in this process. Without this call, LibTorch
/// uses OMP_NUM_THREADS threads, else all cores. REQUIRES: num_threads is at least 1.
void set_num_threads(int num_threads);
int num_threads();

}  // namespace argosy::ops

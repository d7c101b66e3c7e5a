// Every thread that calls operations holds a TensorThread while it does. It says how they compute, it owns
// what products on a GPU need between calls, and LibTorch keeps no books for its autograd, which is not used.
#pragma once

#include <c10/core/InferenceMode.h>

#include <memory>

#include "cublas/matmul.h"

namespace argosy::ops {

/// How operations compute.
enum class Path {
    Fused,  // own kernels, where there is one for the tensors' type and device; one for what follows another
    Separate,  // own kernels, less in each: the same bits in more passes over memory
    Plain,     // compositions of LibTorch's operations: to compare, to debug, and the tests' reference
};

/// Of this thread: that of its innermost TensorThread, or Fused.
Path path();

class TensorThread {
  public:
    explicit TensorThread(Path path = Path::Fused, cublas::Search search = cublas::Search::Heuristic);
    TensorThread(const TensorThread&) = delete;
    ~TensorThread();

    /// Of products on this thread's GPU. The outermost TensorThread of a thread has it.
    cublas::Multiplier& multiplier();

  private:
    friend Path path();

    c10::InferenceMode guard_;
    TensorThread* outer_;  // of this thread; null: this one is the outermost
    Path path_;
    cublas::Search search_;
    std::unique_ptr<cublas::Multiplier> multiplier_;  // made when first needed
};

/// This thread's. REQUIRES: a TensorThread.
cublas::Multiplier& multiplier();

/// How many threads share an operation's loops, in this process from now on; without it LibTorch decides
/// (OMP_NUM_THREADS, else all cores). At least 1.
void set_num_threads(int num_threads);
int num_threads();

}  // namespace argosy::ops

// Every thread that calls operations holds a TensorThread while it does. It says how they compute, and
// LibTorch keeps no books for its autograd, which is not used.
#pragma once

#include <c10/core/InferenceMode.h>

namespace argosy::ops {

/// How operations compute.
enum class Path {
    Fused,  // own kernels, where there is one for the tensors' type and device
    Plain,  // compositions of LibTorch's operations: to compare, to debug, and the tests' reference
};

/// Of this thread: that of its innermost TensorThread, or Fused.
Path path();

class TensorThread {
  public:
    explicit TensorThread(Path path = Path::Fused);
    TensorThread(const TensorThread&) = delete;
    ~TensorThread();

  private:
    c10::InferenceMode guard_;
    Path outer_;
};

/// How many threads share an operation's loops, in this process from now on; without it LibTorch decides
/// (OMP_NUM_THREADS, else all cores). At least 1.
void set_num_threads(int num_threads);
int num_threads();

}  // namespace argosy::ops

// Every thread that touches tensors holds a TensorThread while it does: LibTorch then keeps no books for its
// autograd, which is not used.
#pragma once

#include <c10/core/InferenceMode.h>

namespace argosy::ops {

class TensorThread {
  public:
    TensorThread() = default;
    TensorThread(const TensorThread&) = delete;

  private:
    c10::InferenceMode guard_;
};

}  // namespace argosy::ops

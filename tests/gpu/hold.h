// Holds multiprocessors of a GPU, as kernels of NCCL do, so that what else runs can be measured beside them
// on one GPU. hold_nothing.cpp is for the stand-ins, which have none.
#pragma once

#include "cuda/memory.h"
#include "cuda/stream.h"

namespace argosy::cuda {

/// Of this thread's device.
int num_multiprocessors();

/// A kernel with a block on each of `number` multiprocessors, whose shared memory leaves room for no other
/// block. The constructor returns when all blocks run; throws RunError if they do not. The destructor ends
/// the kernel. The kernel reads a flag of the host once a microsecond.
class HeldMultiprocessors {
  public:
    explicit HeldMultiprocessors(int number);
    HeldMultiprocessors(const HeldMultiprocessors&) = delete;
    ~HeldMultiprocessors();

  private:
    Stream stream_;
    PinnedMemory flags_;  // of each block whether it runs, then whether all may end
};

}  // namespace argosy::cuda

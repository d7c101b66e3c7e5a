// A build without CUDA has no cuDNN.
#include "base/error.h"
#include "gpu/cudnn.h"

namespace argosy::gpu {

bool cudnn_has(const CudnnGraph& /*graph*/) { return false; }
void run_cudnn(const CudnnCall& /*call*/) { ARGOSY_CHECK(false, "this build has no cuDNN"); }

}  // namespace argosy::gpu

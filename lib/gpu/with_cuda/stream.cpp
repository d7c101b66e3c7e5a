#include "gpu/stream.h"

#include <c10/cuda/CUDAStream.h>

namespace argosy::gpu {

CUstream_st* current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

}  // namespace argosy::gpu

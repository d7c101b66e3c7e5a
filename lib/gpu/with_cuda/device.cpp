#include "gpu/device.h"

#include <ATen/Context.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "base/environment.h"
#include "base/error.h"
#include "cuda/device.h"
#include "gpu/with_cuda/watch.h"

namespace argosy::gpu {

// Segments that grow in place waste no memory between blocks of changing sizes. If the user sets LibTorch's
// own variable, that decides instead.
c10::Device use(int number) {
    cuda::set_device(number);
    if (!Environment::read().torch_allocator_is_set) {
        c10::CachingAllocator::setAllocatorSettings("expandable_segments:True");
    }
    at::globalContext().lazyInitDevice(c10::kCUDA);  // makes LibTorch's allocator, which the next lines need
    const auto index = static_cast<c10::DeviceIndex>(number);
    at::globalContext().setFloat32MatmulPrecision("highest");  // overrides TORCH_ALLOW_TF32_CUBLAS_OVERRIDE
    c10::cuda::set_device(index);
    watch_allocations();
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index));
    return {c10::kCUDA, index};
}

bool holds(const at::Tensor& x) { return x.is_cuda(); }

void synchronize() {
    if (cuda::device_count() == 0) return;  // LibTorch would require a driver
    c10::cuda::getCurrentCUDAStream().synchronize();
}

CUstream_st* current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

}  // namespace argosy::gpu

#include "kernels/cuda/swiglu.h"

#include "kernels/cuda/device.cuh"

namespace argosy::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__device__ inline float silu(float gate) { return __fdividef(gate, 1.0F + expf(-gate)); }

template <class T, int kCount>
__global__ void __launch_bounds__(kThreads) swiglu_kernel(Swiglu<T> args) {
    const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount;
    if (i >= args.count) return;
    const auto gate = load<kCount>(args.gate + i), up = load<kCount>(args.up + i);
    Floats<kCount> y;
#pragma unroll
    for (int k = 0; k < kCount; ++k) y[k] = silu(gate[k]) * up[k];
    store(args.y + i, y);
}

}  // namespace

template <class T>
void swiglu(const Swiglu<T>& args, GpuStream stream) {
    const auto start = [&](auto kernel, int width) {
        const int64_t per_block = int64_t{width} * kThreads;
        const auto blocks = static_cast<unsigned>((args.count + per_block - 1) / per_block);
        if (blocks > 0) launch({"swiglu", blocks, kThreads, stream}, kernel, args);
    };
    in_packs<T>(args.count, args.gate, args.up, args.y) ? start(swiglu_kernel<T, kPack<T>>, kPack<T>)
                                                        : start(swiglu_kernel<T, 1>, 1);
}

template void swiglu(const Swiglu<float>&, GpuStream);
template void swiglu(const Swiglu<BFloat16>&, GpuStream);
template void swiglu(const Swiglu<Half>&, GpuStream);

}  // namespace argosy::kernels::cuda

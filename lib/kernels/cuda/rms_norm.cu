#include "kernels/cuda/rms_norm.h"

#include "kernels/cuda/device.cuh"

namespace argosy::kernels::cuda {
namespace {

constexpr int kThreads = 256;

/// kCount elements of the row whose norm is taken: of x, or of x + residual, which is written to `sum`.
template <int kCount, class T>
__device__ Floats<kCount> normed(const RmsNorm<T>& args, int64_t i) {
    auto x = load<kCount>(args.x + i);
    if (args.residual == nullptr) return x;
    const auto residual = load<kCount>(args.residual + i);
#pragma unroll
    for (int k = 0; k < kCount; ++k) x[k] = rounded<T>(x[k] + residual[k]);
    store(args.sum + i, x);
    return x;
}

template <class T, int kCount>
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(RmsNorm<T> args) {
    __shared__ BlockSum<kThreads>::Memory memory;
    BlockSum<kThreads> block_sum(memory);
    const int64_t begin = blockIdx.x * args.row_size;
    float squares = 0;
    for (int64_t i = threadIdx.x * kCount; i < args.row_size; i += kThreads * kCount) {
        const auto x = normed<kCount>(args, begin + i);
#pragma unroll
        for (int k = 0; k < kCount; ++k) squares += x[k] * x[k];
    }
    const float mean_square = block_sum(squares) / static_cast<float>(args.row_size);
    const float inverse = 1.0F / sqrtf(mean_square + args.eps);
    if (threadIdx.x == 0) args.inverse_rms[blockIdx.x] = inverse;
    const T* row = (args.residual == nullptr ? args.x : args.sum) + begin;
    for (int64_t i = threadIdx.x * kCount; i < args.row_size; i += kThreads * kCount) {
        const auto x = load<kCount>(row + i), weight = load<kCount>(args.weight + i);
        Floats<kCount> y;
#pragma unroll
        for (int k = 0; k < kCount; ++k) y[k] = x[k] * inverse * weight[k];
        store(args.y + begin + i, y);
    }
}

}  // namespace

template <class T>
void rms_norm(const RmsNorm<T>& args, GpuStream stream) {
    if (args.num_rows == 0) return;
    const bool packed = in_packs<T>(args.row_size, args.x, args.residual, args.sum, args.weight, args.y);
    const auto kernel = packed ? rms_norm_kernel<T, kPack<T>> : rms_norm_kernel<T, 1>;
    launch({"rms_norm", static_cast<unsigned>(args.num_rows), kThreads, stream}, kernel, args);
}

template void rms_norm(const RmsNorm<float>&, GpuStream);
template void rms_norm(const RmsNorm<BFloat16>&, GpuStream);
template void rms_norm(const RmsNorm<Half>&, GpuStream);

}  // namespace argosy::kernels::cuda

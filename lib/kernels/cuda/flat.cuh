// Kernels that compute each element on its own. Every thread loads kAtOnce packs before it stores any, so
// that enough loads are in flight.
#pragma once

#include "kernels/cuda/device.cuh"

namespace argosy::kernels::cuda {

inline constexpr int kFlatThreads = 256;

/// `Body` has kAtOnce; `load<kCount>(i)`, which returns the inputs of elements [i, i + kCount); and
/// `store(i, loaded)`, which computes and stores these elements.
template <class Body, int kCount>
__global__ void __launch_bounds__(kFlatThreads) flat_kernel(Body body, int64_t begin, int64_t end) {
    const int64_t first = begin + (int64_t{blockIdx.x} * kFlatThreads * Body::kAtOnce + threadIdx.x) * kCount;
    decltype(body.template load<kCount>(0)) loaded[Body::kAtOnce];
#pragma unroll
    for (int k = 0; k < Body::kAtOnce; ++k) {
        const int64_t i = first + k * kFlatThreads * kCount;
        if (i < end) loaded[k] = body.template load<kCount>(i);
    }
#pragma unroll
    for (int k = 0; k < Body::kAtOnce; ++k) {
        const int64_t i = first + k * kFlatThreads * kCount;
        if (i < end) body.store(i, loaded[k]);
    }
}

template <int kCount, class Body>
void launch_flat(const char* name, const Body& body, int64_t begin, int64_t end, GpuStream stream) {
    const int64_t per_block = int64_t{kCount} * kFlatThreads * Body::kAtOnce;
    const auto blocks = static_cast<unsigned>((end - begin + per_block - 1) / per_block);
    if (blocks > 0) launch({name, blocks, kFlatThreads, stream}, flat_kernel<Body, kCount>, body, begin, end);
}

/// Runs over all elements, kCount at a time where `aligned`; the rest go one by one.
template <int kCount, class Body>
void run_flat(const char* name, const Body& body, int64_t count, bool aligned, GpuStream stream) {
    const int64_t in_packs = aligned ? count / kCount * kCount : 0;
    launch_flat<kCount>(name, body, 0, in_packs, stream);
    launch_flat<1>(name, body, in_packs, count, stream);
}

}  // namespace argosy::kernels::cuda

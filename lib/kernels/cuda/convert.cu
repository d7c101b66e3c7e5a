#include "kernels/cuda/kernels.h"

#include "kernels/cuda/flat.cuh"

namespace argosy::kernels::cuda {
namespace {

/// Four elements at a time: 16 bytes of floats, 8 bytes of a narrower type.
constexpr int kAtATime = 4;

template <class From, class To>
struct Conversion {
    static constexpr int kAtOnce = 4;
    const From* from;
    To* to;

    template <int kCount>
    __device__ Elements<From, kCount> load(int64_t i) const {
        return load_elements<kCount>(from + i);
    }
    template <int kCount>
    __device__ void store(int64_t i, const Elements<From, kCount>& loaded) const {
        cuda::store(to + i, widened(loaded));
    }
};

}  // namespace

template <class T>
void widen(const Widen<T>& args, GpuStream stream) {
    run_flat<kAtATime>("widen", Conversion<T, float>{args.from, args.to}, args.count,
                       in_packs<T>(0, args.from, args.to), stream);
}

template <class T>
void narrow(const Narrow<T>& args, GpuStream stream) {
    run_flat<kAtATime>("narrow", Conversion<float, T>{args.from, args.to}, args.count,
                       in_packs<T>(0, args.from, args.to), stream);
}

template void widen(const Widen<float>&, GpuStream);
template void widen(const Widen<BFloat16>&, GpuStream);
template void widen(const Widen<Half>&, GpuStream);
template void narrow(const Narrow<float>&, GpuStream);
template void narrow(const Narrow<BFloat16>&, GpuStream);
template void narrow(const Narrow<Half>&, GpuStream);

}  // namespace argosy::kernels::cuda

#include "kernels/cuda/swiglu.h"

#include "kernels/cuda/flat.cuh"

namespace argosy::kernels::cuda {
namespace {

template <class T>
struct SwigluBody {
    static constexpr int kAtOnce = 2;
    Swiglu<T> args;

    template <int kCount>
    struct Loaded {
        Elements<T, kCount> gate, up;
    };
    template <int kCount>
    __device__ Loaded<kCount> load(int64_t i) const {
        return {load_elements<kCount>(args.gate + i), load_elements<kCount>(args.up + i)};
    }
    template <int kCount>
    __device__ void store(int64_t i, const Loaded<kCount>& loaded) const {
        const auto gate = widened(loaded.gate), up = widened(loaded.up);
        Floats<kCount> y;
#pragma unroll
        for (int k = 0; k < kCount; ++k) y[k] = __fdividef(gate[k], 1.0F + expf(-gate[k])) * up[k];
        cuda::store(args.y + i, y);
    }
};

// With s = sigmoid(gate): d silu / d gate = s (1 + gate (1 - s)).
template <class T>
struct SwigluBackwardBody {
    static constexpr int kAtOnce = 1;
    SwigluBackward<T> args;

    template <int kCount>
    struct Loaded {
        Elements<T, kCount> dy, gate, up;
    };
    template <int kCount>
    __device__ Loaded<kCount> load(int64_t i) const {
        return {load_elements<kCount>(args.dy + i), load_elements<kCount>(args.gate + i),
                load_elements<kCount>(args.up + i)};
    }
    template <int kCount>
    __device__ void store(int64_t i, const Loaded<kCount>& loaded) const {
        const auto dy = widened(loaded.dy), gate = widened(loaded.gate), up = widened(loaded.up);
        Floats<kCount> dgate, dup;
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
            const float open = __fdividef(1.0F, 1.0F + expf(-gate[k]));
            const float slope = open * (1.0F + gate[k] * (1.0F - open));
            dgate[k] = slope * dy[k] * up[k];
            dup[k] = gate[k] * open * dy[k];
        }
        cuda::store(args.dgate + i, dgate);
        cuda::store(args.dup + i, dup);
    }
};

}  // namespace

template <class T>
void swiglu(const Swiglu<T>& args, GpuStream stream) {
    const bool aligned = in_packs<T>(0, args.gate, args.up, args.y);
    run_flat<kPack<T>>("swiglu", SwigluBody<T>{args}, args.count, aligned, stream);
}

template <class T>
void swiglu_backward(const SwigluBackward<T>& args, GpuStream stream) {
    const bool aligned = in_packs<T>(0, args.dy, args.gate, args.up, args.dgate, args.dup);
    run_flat<kPack<T>>("swiglu_backward", SwigluBackwardBody<T>{args}, args.count, aligned, stream);
}

template void swiglu(const Swiglu<float>&, GpuStream);
template void swiglu(const Swiglu<BFloat16>&, GpuStream);
template void swiglu(const Swiglu<Half>&, GpuStream);
template void swiglu_backward(const SwigluBackward<float>&, GpuStream);
template void swiglu_backward(const SwigluBackward<BFloat16>&, GpuStream);
template void swiglu_backward(const SwigluBackward<Half>&, GpuStream);

}  // namespace argosy::kernels::cuda

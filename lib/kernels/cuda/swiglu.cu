#include "kernels/cuda/kernels.h"

#include "kernels/cuda/flat.cuh"

namespace argosy::kernels::cuda {
namespace {

/// The offset of element i, counted row by row, in rows that are `stride` elements apart. REQUIRES: i < 2^32,
/// for a division of 32 bits.
__device__ inline int64_t place_of(int64_t i, int64_t row_size, int64_t stride) {
    const auto row = static_cast<uint32_t>(i) / static_cast<uint32_t>(row_size);
    return i + row * (stride - row_size);
}

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
        const int64_t at = place_of(i, args.row_size, args.stride);
        return {load_elements<kCount>(args.gate + at), load_elements<kCount>(args.up + at)};
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

// s = sigmoid(gate): d silu / d gate = s (1 + gate (1 - s)).
template <class T>
struct SwigluBackwardBody {
    static constexpr int kAtOnce = 1;
    SwigluBackward<T> args;

    template <int kCount>
    struct Loaded {
        int64_t at;
        Elements<T, kCount> dy, gate, up;
    };
    template <int kCount>
    __device__ Loaded<kCount> load(int64_t i) const {
        const int64_t at = place_of(i, args.row_size, args.stride);
        return {at, load_elements<kCount>(args.dy + i), load_elements<kCount>(args.gate + at),
                load_elements<kCount>(args.up + at)};
    }
    template <int kCount>
    __device__ void store(int64_t /*i*/, const Loaded<kCount>& loaded) const {
        const auto dy = widened(loaded.dy), gate = widened(loaded.gate), up = widened(loaded.up);
        Floats<kCount> dgate, dup;
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
            const float open = __fdividef(1.0F, 1.0F + expf(-gate[k]));
            const float slope = open * (1.0F + gate[k] * (1.0F - open));
            dgate[k] = slope * dy[k] * up[k];
            dup[k] = gate[k] * open * dy[k];
        }
        cuda::store(args.dgate + loaded.at, dgate);
        cuda::store(args.dup + loaded.at, dup);
    }
};

/// The maximum number of rows whose elements place_of can count.
int64_t most_rows(int64_t row_size) { return (int64_t{1} << 32) / row_size; }

}  // namespace

template <class T>
void swiglu(const Swiglu<T>& args, GpuStream stream) {
    if (args.row_size == 0) return;
    const bool aligned = in_packs<T>(args.row_size | args.stride, args.gate, args.up, args.y);
    const int64_t most = most_rows(args.row_size);
    for (Swiglu<T> left = args; left.num_rows > 0; left.num_rows -= most) {
        const int64_t count = (left.num_rows < most ? left.num_rows : most) * args.row_size;
        run_flat<kPack<T>>("swiglu", SwigluBody<T>{left}, count, aligned, stream);
        left.gate += most * args.stride, left.up += most * args.stride, left.y += most * args.row_size;
    }
}

template <class T>
void swiglu_backward(const SwigluBackward<T>& args, GpuStream stream) {
    if (args.row_size == 0) return;
    const bool aligned =
        in_packs<T>(args.row_size | args.stride, args.dy, args.gate, args.up, args.dgate, args.dup);
    const int64_t most = most_rows(args.row_size), step = most * args.stride;
    for (SwigluBackward<T> left = args; left.num_rows > 0; left.num_rows -= most) {
        const int64_t count = (left.num_rows < most ? left.num_rows : most) * args.row_size;
        run_flat<kPack<T>>("swiglu_backward", SwigluBackwardBody<T>{left}, count, aligned, stream);
        left.dy += most * args.row_size, left.gate += step, left.up += step;
        left.dgate += step, left.dup += step;
    }
}

template void swiglu(const Swiglu<float>&, GpuStream);
template void swiglu(const Swiglu<BFloat16>&, GpuStream);
template void swiglu(const Swiglu<Half>&, GpuStream);
template void swiglu_backward(const SwigluBackward<float>&, GpuStream);
template void swiglu_backward(const SwigluBackward<BFloat16>&, GpuStream);
template void swiglu_backward(const SwigluBackward<Half>&, GpuStream);

}  // namespace argosy::kernels::cuda

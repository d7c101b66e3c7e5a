// Conversions, rotary position embedding and gated linear units on GPUs.
#include "kernels/cuda/kernels.h"

#include "kernels/cuda/rows.cuh"

namespace argosy::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Kernels that compute each element on its own. Every thread loads kAtOnce packs before it stores any, so
// that enough loads are in flight.

/// `Body` has kAtOnce; `load<kCount>(i)`, which returns the inputs of elements [i, i + kCount); and
/// `store(i, loaded, written)`, which computes and stores these elements, and includes them in `written`
/// where kLargest.
template <class Body, int kCount, bool kLargest>
__global__ void __launch_bounds__(kThreads)
    flat_kernel(Body body, int64_t begin, int64_t end, float* largest) {
    LargestOfBlock<kThreads, kLargest> written(largest);
    const int64_t first = begin + (int64_t{blockIdx.x} * kThreads * Body::kAtOnce + threadIdx.x) * kCount;
    decltype(body.template load<kCount>(0)) loaded[Body::kAtOnce];
#pragma unroll
    for (int k = 0; k < Body::kAtOnce; ++k) {
        const int64_t i = first + k * kThreads * kCount;
        if (i < end) loaded[k] = body.template load<kCount>(i);
    }
#pragma unroll
    for (int k = 0; k < Body::kAtOnce; ++k) {
        const int64_t i = first + k * kThreads * kCount;
        if (i < end) body.store(i, loaded[k], written);
    }
    written.raise();
}

template <int kCount, class Body>
void launch_flat(const char* name, const Body& body, int64_t begin, int64_t end, GpuStream stream,
                 float* largest) {
    const int64_t per_block = int64_t{kCount} * kThreads * Body::kAtOnce;
    const auto blocks = static_cast<unsigned>(ceil_div(end - begin, per_block));
    auto kernel = flat_kernel<Body, kCount, false>;
    if constexpr (Body::kHasLargest) kernel = largest != nullptr ? flat_kernel<Body, kCount, true> : kernel;
    if (blocks > 0) launch({name, blocks, kThreads, stream}, kernel, body, begin, end, largest);
}

/// Processes all elements, kCount at a time if `aligned`, and the rest one by one.
template <int kCount, class Body>
void run_flat(const char* name, const Body& body, int64_t count, bool aligned, GpuStream stream,
              float* largest = nullptr) {
    const int64_t in_packs = aligned ? count / kCount * kCount : 0;
    launch_flat<kCount>(name, body, 0, in_packs, stream, largest);
    launch_flat<1>(name, body, in_packs, count, stream, largest);
}

/// Four elements at a time: 16 bytes of floats, 8 bytes of a narrower type.
constexpr int kAtATime = 4;

template <class From, class To>
struct Conversion {
    static constexpr int kAtOnce = 4;
    static constexpr bool kHasLargest = false;
    const From* from;
    To* to;

    template <int kCount>
    __device__ Elements<From, kCount> load(int64_t i) const {
        return load_elements<kCount>(from + i);
    }
    template <int kCount, class Written>
    __device__ void store(int64_t i, const Elements<From, kCount>& loaded, Written&) const {
        cuda::store(to + i, widened(loaded));
    }
};

/// A thread rotates the same pairs of kHeads heads, so that the angles are loaded once for all of them and
/// more loads are in flight.
constexpr int kHeads = 4;

/// The grid is [head group, chunk of rows], so that adjacent blocks work on adjacent memory.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads) rope_kernel(Rope<T> args, unsigned num_threads) {
    const unsigned thread = blockIdx.y * kThreads + threadIdx.x;
    if (thread >= num_threads) return;
    const auto packs_per_half = static_cast<unsigned>(args.half / kCount);
    const unsigned row = thread / packs_per_half, i = thread % packs_per_half * kCount;
    const auto position = args.positions != nullptr ? static_cast<unsigned>(args.positions[row])
                                                    : (static_cast<unsigned>(args.first_row) + row) %
                                                          static_cast<unsigned>(args.seq_len);
    const int64_t angle = position * args.half + i, head_size = 2 * args.half + args.num_unrotated;
    const int64_t first_head = int64_t{blockIdx.x} * kHeads, heads_left = args.num_heads - first_head;
    const int64_t column = first_head * head_size + i;
    const T* x = args.x + row * args.x_stride + column;
    T* y = args.y + row * args.y_stride + column;
    Elements<T, kCount> firsts[kHeads], seconds[kHeads];
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
        if (head >= heads_left) break;
        firsts[head] = load_elements<kCount>(x + head * head_size);
        seconds[head] = load_elements<kCount>(x + head * head_size + args.half);
    }
    const auto cos = load<kCount>(args.cos + angle), sin = load<kCount>(args.sin + angle);
    const float direction = args.rotation == Rotation::Forward ? 1.0F : -1.0F;
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
        if (head >= heads_left) break;
        const auto first = widened(firsts[head]), second = widened(seconds[head]);
        Floats<kCount> rotated_first, rotated_second;
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
            const float s = sin[k] * direction;
            rotated_first[k] = first[k] * cos[k] - second[k] * s;
            rotated_second[k] = second[k] * cos[k] + first[k] * s;
        }
        store(y + head * head_size, rotated_first);
        store(y + head * head_size + args.half, rotated_second);
    }
}

/// Copies the elements that do not rotate. A block copies those of one row.
template <class T>
__global__ void __launch_bounds__(kThreads) rope_unrotated_kernel(Rope<T> args) {
    const int64_t rotated = 2 * args.half, head_size = rotated + args.num_unrotated;
    const T* x = args.x + blockIdx.x * args.x_stride + rotated;
    T* y = args.y + blockIdx.x * args.y_stride + rotated;
    for (int64_t i = threadIdx.x; i < args.num_heads * args.num_unrotated; i += kThreads) {
        const int64_t at = i / args.num_unrotated * head_size + i % args.num_unrotated;
        y[at] = x[at];
    }
}

/// Splits the rows over launches that fit into a grid, so that a thread computes its row number in 32 bits.
template <class T, int kCount>
void launch_rope(Rope<T> args, GpuStream stream) {
    constexpr int64_t kMaxThreads = int64_t{kThreads} * 65535;
    const int64_t packs_per_half = args.half / kCount, max_rows = kMaxThreads / packs_per_half;
    const auto groups = static_cast<unsigned>(ceil_div(args.num_heads, kHeads));
    if (args.num_unrotated > 0 && args.num_rows > 0 && args.x != args.y) {
        launch({"rope_unrotated", static_cast<unsigned>(args.num_rows), kThreads, stream},
               rope_unrotated_kernel<T>, args);
    }
    for (int64_t rows_left = args.num_rows; rows_left > 0; rows_left -= max_rows) {
        args.num_rows = rows_left < max_rows ? rows_left : max_rows;
        args.first_row %= args.seq_len;
        const auto num_threads = static_cast<unsigned>(args.num_rows * packs_per_half);
        const dim3 blocks(groups, (num_threads + kThreads - 1) / kThreads);
        launch({"rope", blocks, kThreads, stream}, rope_kernel<T, kCount>, args, num_threads);
        args.x += max_rows * args.x_stride, args.y += max_rows * args.y_stride;
        args.first_row += max_rows;
        if (args.positions != nullptr) args.positions += max_rows;
    }
}

/// The a of activation(gate) = gate sigmoid(a); with 3 * kGeluCubic it is gate da / dgate.
template <Activation kActivation>
__device__ float sigmoid_argument(float gate, double cubic = kGeluCubic) {
    if constexpr (kActivation == Activation::Silu) return gate;
    return gate * (static_cast<float>(kGeluLinear) + static_cast<float>(cubic) * (gate * gate));
}

template <class T, Activation kActivation>
struct GluBody {
    static constexpr int kAtOnce = 2;
    static constexpr bool kHasLargest = true;
    Glu<T> args;

    template <int kCount>
    struct Loaded {
        Elements<T, kCount> gate, up;
        float weight;
    };
    template <int kCount>
    __device__ Loaded<kCount> load(int64_t i) const {
        const int64_t at = place_of(i, args.row_size, args.stride);
        const auto row = static_cast<uint32_t>(i) / static_cast<uint32_t>(args.row_size);
        return {load_elements<kCount>(args.gate + at), load_elements<kCount>(args.up + at),
                args.weights != nullptr ? args.weights[row] : 1.0F};
    }
    template <int kCount, class Written>
    __device__ void store(int64_t i, const Loaded<kCount>& loaded, Written& written) const {
        const auto gate = widened(loaded.gate), up = widened(loaded.up);
        Floats<kCount> y;
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
            const float activated = __fdividef(gate[k], 1.0F + expf(-sigmoid_argument<kActivation>(gate[k])));
            y[k] = activated * up[k] * loaded.weight;
        }
        written.store_and_include(args.y + i, narrowed<T>(y));
    }
};

/// What backward computes of an element: let s = sigmoid(a) and b = gate da / dgate; then the slope, d
/// activation / d gate, is s (1 + b (1 - s)).
struct Activated {
    float value, slope;
};
template <Activation kActivation>
__device__ Activated activated(float gate) {
    const float open = __fdividef(1.0F, 1.0F + expf(-sigmoid_argument<kActivation>(gate)));
    const float b = sigmoid_argument<kActivation>(gate, 3 * kGeluCubic);
    return {gate * open, open * (1.0F + b * (1.0F - open))};
}

template <class T, Activation kActivation>
struct GluBackwardBody {
    static constexpr int kAtOnce = 1;
    static constexpr bool kHasLargest = true;
    GluBackward<T> args;

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
    template <int kCount, class Written>
    __device__ void store(int64_t /*i*/, const Loaded<kCount>& loaded, Written& written) const {
        const auto dy = widened(loaded.dy), gate = widened(loaded.gate), up = widened(loaded.up);
        Floats<kCount> dgate, dup;
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
            const auto [value, slope] = activated<kActivation>(gate[k]);
            dgate[k] = slope * dy[k] * up[k];
            dup[k] = value * dy[k];
        }
        written.store_and_include(args.dgate + loaded.at, narrowed<T>(dgate));
        written.store_and_include(args.dup + loaded.at, narrowed<T>(dup));
    }
};

/// The same for rows with weights. A warp computes a row: the gradient of its weight is a sum over the row.
template <class T, Activation kActivation, int kCount>
__global__ void __launch_bounds__(kThreads) weighted_glu_backward_kernel(GluBackward<T> args) {
    const int64_t row = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
    if (row >= args.num_rows) return;
    const T* upper = args.dy + row * args.row_size;
    const int64_t begin = row * args.stride;
    const float weight = args.weights[row];
    float dweight = 0;
    for (int64_t i = threadIdx.x % kWarp * kCount; i < args.row_size; i += kWarp * kCount) {
        const auto dy = load<kCount>(upper + i), gate = load<kCount>(args.gate + begin + i),
                   up = load<kCount>(args.up + begin + i);
        Floats<kCount> dgate, dup;
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
            const auto [value, slope] = activated<kActivation>(gate[k]);
            const float weighted = dy[k] * weight;
            dgate[k] = slope * weighted * up[k];
            dup[k] = value * weighted;
            dweight = fmaf(value * up[k], dy[k], dweight);
        }
        store(args.dgate + begin + i, dgate);
        store(args.dup + begin + i, dup);
    }
    dweight = warp_sum(dweight);
    if (threadIdx.x % kWarp == 0) args.dweights[row] = dweight;
}

template <class T, Activation kActivation>
void launch_weighted_glu_backward(const GluBackward<T>& args, bool aligned, GpuStream stream) {
    if (args.num_rows == 0) return;
    const auto kernel = aligned ? weighted_glu_backward_kernel<T, kActivation, kPack<T>>
                                : weighted_glu_backward_kernel<T, kActivation, 1>;
    launch({"weighted_glu_backward", static_cast<unsigned>(ceil_div(args.num_rows, kThreads / kWarp)),
            kThreads, stream},
           kernel, args);
}

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
template void narrow(const Narrow<float>&, GpuStream);
template void narrow(const Narrow<BFloat16>&, GpuStream);

template <class T>
void rope(const Rope<T>& args, GpuStream stream) {
    if (args.num_heads == 0 || args.half == 0) return;
    const int64_t sizes = args.half | args.num_unrotated | args.x_stride | args.y_stride;
    const bool packed = in_packs<T>(sizes, args.x, args.y, args.cos, args.sin);
    packed ? launch_rope<T, kPack<T>>(args, stream) : launch_rope<T, 1>(args, stream);
}

template void rope(const Rope<float>&, GpuStream);
template void rope(const Rope<BFloat16>&, GpuStream);

template <class T>
void glu(const Glu<T>& args, GpuStream stream, float* largest) {
    if (args.row_size == 0) return;
    const bool aligned = in_packs<T>(args.row_size | args.stride, args.gate, args.up, args.y);
    const int64_t max_rows = max_rows_per_launch(args.row_size);
    for (Glu<T> left = args; left.num_rows > 0; left.num_rows -= max_rows) {
        const int64_t count = (left.num_rows < max_rows ? left.num_rows : max_rows) * args.row_size;
        const auto run = [&](auto body) { run_flat<kPack<T>>("glu", body, count, aligned, stream, largest); };
        args.activation == Activation::Silu ? run(GluBody<T, Activation::Silu>{left})
                                            : run(GluBody<T, Activation::GeluTanh>{left});
        left.gate += max_rows * args.stride, left.up += max_rows * args.stride,
            left.y += max_rows * args.row_size;
        if (left.weights != nullptr) left.weights += max_rows;
    }
}

template <class T>
void glu_backward(const GluBackward<T>& args, GpuStream stream, float* largest) {
    if (args.row_size == 0) return;
    const bool aligned =
        in_packs<T>(args.row_size | args.stride, args.dy, args.gate, args.up, args.dgate, args.dup);
    if (args.weights != nullptr) {
        return args.activation == Activation::Silu
                   ? launch_weighted_glu_backward<T, Activation::Silu>(args, aligned, stream)
                   : launch_weighted_glu_backward<T, Activation::GeluTanh>(args, aligned, stream);
    }
    const int64_t max_rows = max_rows_per_launch(args.row_size), step = max_rows * args.stride;
    for (GluBackward<T> left = args; left.num_rows > 0; left.num_rows -= max_rows) {
        const int64_t count = (left.num_rows < max_rows ? left.num_rows : max_rows) * args.row_size;
        const auto run = [&](auto body) {
            run_flat<kPack<T>>("glu_backward", body, count, aligned, stream, largest);
        };
        args.activation == Activation::Silu ? run(GluBackwardBody<T, Activation::Silu>{left})
                                            : run(GluBackwardBody<T, Activation::GeluTanh>{left});
        left.dy += max_rows * args.row_size, left.gate += step, left.up += step;
        left.dgate += step, left.dup += step;
    }
}

template void glu(const Glu<float>&, GpuStream, float*);
template void glu(const Glu<BFloat16>&, GpuStream, float*);
template void glu_backward(const GluBackward<float>&, GpuStream, float*);
template void glu_backward(const GluBackward<BFloat16>&, GpuStream, float*);

}  // namespace argosy::kernels::cuda

// The first launch sums each block of a tensor's elements; the second, with one block for each tensor, adds
// these sums. An element takes 4 bytes of memory, and one conversion and one multiply-add in fp64, of which a
// multiprocessor does 16 and 64 at a time: at most a third of the time that memory takes.
#include "kernels/cuda/kernels.h"

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/tensor_list.cuh"

namespace argosy::kernels::cuda {
namespace {

constexpr int kThreads = 256, kCount = kPack<float>;
constexpr int kAtOnce = 4;  // packs that a thread loads at once
constexpr int64_t kElementsPerBlock = 1 << 15;
static_assert(kElementsPerBlock % (kThreads * kCount * kAtOnce) == 0);

int64_t num_partials(int64_t count) { return (count + kElementsPerBlock - 1) / kElementsPerBlock; }

struct Squares {
    const float* x;
    int64_t count;
    double* partials;  // one for each block
    bool packed;

    int64_t num_blocks() const { return num_partials(count); }
};

struct Total {
    const double* partials;
    int64_t num_partials;
    double* norm;

    int64_t num_blocks() const { return 1; }
};

/// Loads kCount elements, from any multiple of 4 bytes unless kPacked. A thread gets the same elements in
/// either case, since the order of the sum depends on sizes alone.
template <bool kPacked>
__device__ Floats<kCount> load_pack(const float* x) {
    if constexpr (kPacked) return load<kCount>(x);
    return {x[0], x[1], x[2], x[3]};
}

/// The calling thread's part of the sum over x[0] ... x[size].
template <bool kPacked>
__device__ double thread_sum(const float* x, int64_t size) {
    constexpr int kWidth = kThreads * kCount;
    const int64_t in_packs = size / kCount * kCount;
    double sums[kCount] = {};
    for (int64_t begin = threadIdx.x * kCount; begin < in_packs; begin += kAtOnce * kWidth) {
        Floats<kCount> packs[kAtOnce] = {};
#pragma unroll
        for (int p = 0; p < kAtOnce; ++p) {
            if (begin + p * kWidth < in_packs) packs[p] = load_pack<kPacked>(x + begin + p * kWidth);
        }
#pragma unroll
        for (int p = 0; p < kAtOnce; ++p) {
#pragma unroll
            for (int k = 0; k < kCount; ++k) sums[k] += double{packs[p][k]} * double{packs[p][k]};
        }
    }
    if (threadIdx.x < size - in_packs) {
        const double last = x[in_packs + threadIdx.x];
        sums[0] += last * last;
    }
    return sums[0] + sums[1] + sums[2] + sums[3];
}

__global__ void __launch_bounds__(kThreads) squares_kernel(const __grid_constant__ TensorList<Squares> list) {
    __shared__ BlockSum<kThreads, double>::Memory memory;
    const auto place = list.place();
    const Squares& tensor = list.items[place.item];
    const int64_t begin = place.block * kElementsPerBlock, rest = tensor.count - begin;
    const int64_t size = rest < kElementsPerBlock ? rest : kElementsPerBlock;
    const float* x = tensor.x + begin;
    const double sum = tensor.packed ? thread_sum<true>(x, size) : thread_sum<false>(x, size);
    const double total = BlockSum<kThreads, double>(memory)(sum);
    if (threadIdx.x == 0) tensor.partials[place.block] = total;
}

__global__ void __launch_bounds__(kThreads) totals_kernel(const __grid_constant__ TensorList<Total> list) {
    __shared__ BlockSum<kThreads, double>::Memory memory;
    const Total tensor = list.items[list.place().item];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < tensor.num_partials; i += kThreads) sum += tensor.partials[i];
    const double total = BlockSum<kThreads, double>(memory)(sum);
    if (threadIdx.x == 0) *tensor.norm = total;
}

}  // namespace

int64_t squared_norms_scratch_bytes(std::span<const SquaredNorm> tensors) {
    int64_t count = 0;
    for (const SquaredNorm& tensor : tensors) count += num_partials(tensor.count);
    return count * static_cast<int64_t>(sizeof(double));
}

void squared_norms(std::span<const SquaredNorm> tensors, double* norms, void* scratch, GpuStream stream) {
    const auto count = static_cast<int64_t>(tensors.size());
    auto* partials = static_cast<double*>(scratch);
    const auto squares = [&, next = partials](int64_t i) mutable {
        double* own = next;
        next += num_partials(tensors[i].count);
        return Squares{tensors[i].x, tensors[i].count, own, in_packs<float>(0, tensors[i].x)};
    };
    for_each_list<Squares>(count, squares, [&](const TensorList<Squares>& list) {
        launch({"squared_norms", list.num_blocks(), kThreads, stream}, squares_kernel, list);
    });
    const auto total = [&, next = partials](int64_t i) mutable {
        const double* own = next;
        next += num_partials(tensors[i].count);
        return Total{own, num_partials(tensors[i].count), norms + i};
    };
    for_each_list<Total>(count, total, [&](const TensorList<Total>& list) {
        launch({"squared_norms", list.num_blocks(), kThreads, stream}, totals_kernel, list);
    });
}

}  // namespace argosy::kernels::cuda

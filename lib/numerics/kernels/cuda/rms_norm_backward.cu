// The backward pass of RMSNorm on GPUs. Let r = inverse_rms, n = x r and w = weight + weight_offset. Then
//   dx = r (dy w - n mean(dy w n)) + residual,  dw = sum over rows of dy n.
// dx is rounded before the residual is added. A block processes many rows, keeps its sums of dw in registers
// and writes them to its row of `partial` at the end.
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/rows.cuh"

namespace argosy::kernels::cuda {
namespace {

constexpr int kThreads = 256;    // of the kernel for rows of any size
constexpr int kMaxPacks = 1024;  // of the longest row that fits in registers beside the sums of dw

template <int kCount>
struct Row {
    Floats<kCount> normed, dy;
};

/// Returns the sum of dy w n over one pack of a row; adds dy n to dweight.
template <int kCount>
__device__ float products(const Row<kCount>& row, const Floats<kCount>& weight, Floats<kCount>& dweight) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
        const float product = row.dy[k] * row.normed[k];
        sum += product * weight[k];
        dweight[k] += product;
    }
    return sum;
}

/// dx before the residual is added.
template <class T, int kCount>
__device__ Elements<T, kCount> dx_without_residual(const Row<kCount>& row, const Floats<kCount>& weight,
                                                   float mean, float inverse) {
    Floats<kCount> dx;
#pragma unroll
    for (int k = 0; k < kCount; ++k) dx[k] = (row.dy[k] * weight[k] - row.normed[k] * mean) * inverse;
    return narrowed<T>(dx);
}

template <class T, int kCount>
__device__ void add(Elements<T, kCount>& x, const Elements<T, kCount>& y) {
    auto sum = widened(x);
    const auto other = widened(y);
#pragma unroll
    for (int k = 0; k < kCount; ++k) sum[k] += other[k];
    x = narrowed<T>(sum);
}

template <int kCount, class T>
__device__ Row<kCount> row_of(const Elements<T, kCount>& x, const Elements<T, kCount>& dy, float inverse) {
    Row<kCount> row = {widened(x), widened(dy)};
#pragma unroll
    for (int k = 0; k < kCount; ++k) row.normed[k] *= inverse;
    return row;
}

/// Sums dweight over the groups of a block, one group after the other. The first group gets the result.
template <class Shape, int kCount>
__device__ void sum_groups(Floats<kCount> (&dweight)[Shape::kPacks]) {
    __shared__ Shared<float, Shape::kLanes * Shape::kPacks * kCount> sums;
    const int lane = threadIdx.x % Shape::kLanes, group = threadIdx.x / Shape::kLanes;
    for (int turn = 0; turn < Shape::kGroups; ++turn) {
        if (group == (turn + 1) % Shape::kGroups) {
#pragma unroll
            for (int pack = 0; pack < Shape::kPacks; ++pack) {
#pragma unroll
                for (int k = 0; k < kCount; ++k) {
                    // Adjacent lanes use adjacent banks.
                    float& sum = sums[(pack * kCount + k) * Shape::kLanes + lane];
                    sum = dweight[pack][k] += turn == 0 ? 0 : sum;
                }
            }
        }
        __syncthreads();
    }
}

/// Writes the block's sums to its row of `partial`.
template <class T, class Shape>
__device__ void write_partial(Floats<kPack<T>> (&dweight)[Shape::kPacks], int64_t row_size, float* partial) {
    if constexpr (Shape::kGroups > 1) sum_groups<Shape>(dweight);
    if (threadIdx.x >= Shape::kLanes) return;
#pragma unroll
    for (int pack = 0; pack < Shape::kPacks; ++pack) {
        const int64_t column = (pack * Shape::kLanes + threadIdx.x) * kPack<T>;
        if (column < row_size) store(partial + blockIdx.x * row_size + column, dweight[pack]);
    }
}

/// A thread's elements of the rows that it works on.
template <class T, class Shape>
struct LoadedRows {
    Elements<T, kPack<T>> x[Shape::kRows][Shape::kPacks], dy[Shape::kRows][Shape::kPacks],
        residual[Shape::kRows][Shape::kPacks];
    float inverse[Shape::kRows];
};

template <class T, class Shape>
__device__ LoadedRows<T, Shape> load_rows(const RmsNormBackward<T>& args, const RowPlace<T, Shape>& place) {
    LoadedRows<T, Shape> loaded = {};
#pragma unroll
    for (int row = 0; row < Shape::kRows; ++row) {
        if (place.has_row(row)) loaded.inverse[row] = args.inverse_rms[place.row(row)];
        const T* x = args.x + elements_in_gaps(args.x_groups, place.row(row));
#pragma unroll
        for (int pack = 0; pack < Shape::kPacks; ++pack) {
            loaded.x[row][pack] = place.load(x, row, pack);
            loaded.dy[row][pack] = place.load(args.dy, row, pack);
            if (args.residual != nullptr) loaded.residual[row][pack] = place.load(args.residual, row, pack);
        }
    }
    return loaded;
}

/// Writes dx of rows that are loaded and adds to dweight.
template <class T, class Shape>
__device__ void write_rows(const RmsNormBackward<T>& args, const RowPlace<T, Shape>& place,
                           LoadedRows<T, Shape>& loaded, RowSum<Shape>& row_sum,
                           Floats<kPack<T>> (&dweight)[Shape::kPacks]) {
#pragma unroll
    for (int row = 0; row < Shape::kRows; ++row) {
        const float inverse = loaded.inverse[row];
        float sum = 0;
#pragma unroll
        for (int pack = 0; pack < Shape::kPacks; ++pack) {
            auto &x = loaded.x[row][pack], &dy = loaded.dy[row][pack];
            const auto weight =
                with_offset(widened(place.load_column(args.weight, pack)), args.weight_offset);
            sum += products(row_of(x, dy, inverse), weight, dweight[pack]);
            keep_narrow(x);
            keep_narrow(dy);
        }
        const float mean = __fdividef(row_sum(sum), static_cast<float>(args.row_size));
        T* to = args.dx + elements_in_gaps(args.dx_groups, place.row(row));
#pragma unroll
        for (int pack = 0; pack < Shape::kPacks; ++pack) {
            if (!place.has(row, pack)) continue;
            const auto weight =
                with_offset(widened(place.load_column(args.weight, pack)), args.weight_offset);
            const auto one = row_of(loaded.x[row][pack], loaded.dy[row][pack], inverse);
            auto dx = dx_without_residual<T>(one, weight, mean, inverse);
            if (args.residual != nullptr) add(dx, loaded.residual[row][pack]);
            store(to + place.at(row, pack), dx);
        }
    }
}

/// If registers suffice, the kernel loads the next rows before it processes the current ones, so that loads
/// are in flight while threads wait for each other.
template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    rms_norm_backward_kernel(RmsNormBackward<T> args, float* partial) {
    using Place = RowPlace<T, Shape>;
    constexpr bool kAhead = Shape::kPacks * Shape::kRows <= 2;
    __shared__ typename RowSum<Shape>::Memory memory;
    RowSum<Shape> row_sum(memory);
    Floats<kPack<T>> dweight[Shape::kPacks] = {};
    const int64_t step = int64_t{gridDim.x} * Shape::kRowsPerBlock;
    int64_t first = int64_t{blockIdx.x} * Shape::kRowsPerBlock;
    LoadedRows<T, Shape> next;
    if constexpr (kAhead) next = load_rows(args, Place(first, args.num_rows, args.row_size));
    for (; first < args.num_rows; first += step) {
        const Place place(first, args.num_rows, args.row_size);
        LoadedRows<T, Shape> loaded;
        if constexpr (kAhead) {
            loaded = next;
            next = load_rows(args, Place(first + step, args.num_rows, args.row_size));
        } else {
            loaded = load_rows(args, place);
        }
        write_rows(args, place, loaded, row_sum, dweight);
    }
    write_partial<T, Shape>(dweight, args.row_size, partial);
}

/// For rows that are too long for rms_norm_backward_kernel, or whose size or address is not a multiple of 16
/// bytes. Each block adds to its row of `partial` in memory.
template <class T>
__global__ void __launch_bounds__(kThreads)
    any_rms_norm_backward_kernel(RmsNormBackward<T> args, float* partial) {
    __shared__ BlockSum<kThreads>::Memory memory;
    BlockSum<kThreads> block_sum(memory);
    float* dweight = partial + blockIdx.x * args.row_size;
    for (int64_t i = threadIdx.x; i < args.row_size; i += kThreads) dweight[i] = 0;
    for (int64_t row = blockIdx.x; row < args.num_rows; row += gridDim.x) {
        const int64_t begin = row * args.row_size;
        const float inverse = args.inverse_rms[row];
        const T* x = args.x + begin + elements_in_gaps(args.x_groups, row);
        T* to = args.dx + begin + elements_in_gaps(args.dx_groups, row);
        const auto load_row = [&](int64_t i) {
            return row_of(load_elements<1>(x + i), load_elements<1>(args.dy + begin + i), inverse);
        };
        const auto weight_at = [&](int64_t i) {
            return with_offset(load<1>(args.weight + i), args.weight_offset);
        };
        float sum = 0;
        for (int64_t i = threadIdx.x; i < args.row_size; i += kThreads) {
            auto total = load<1>(dweight + i);
            sum += products(load_row(i), weight_at(i), total);
            store(dweight + i, total);
        }
        const float mean = __fdividef(block_sum(sum), static_cast<float>(args.row_size));
        for (int64_t i = threadIdx.x; i < args.row_size; i += kThreads) {
            auto dx = dx_without_residual<T>(load_row(i), weight_at(i), mean, inverse);
            if (args.residual != nullptr) add(dx, load_elements<1>(args.residual + begin + i));
            store(to + i, dx);
        }
    }
}

template <class T>
int64_t max_blocks(const RmsNormBackward<T>& args) {
    return blocks_for(args.num_rows, kMaxBlocks);
}

}  // namespace

template <class T>
int64_t rms_norm_backward_scratch_bytes(const RmsNormBackward<T>& args) {
    return max_blocks(args) * args.row_size * int64_t{sizeof(float)};
}

template <class T>
void rms_norm_backward(const RmsNormBackward<T>& args, void* scratch, GpuStream stream) {
    if (args.num_rows == 0) return;
    auto* partial = static_cast<float*>(scratch);
    int64_t blocks = max_blocks(args);
    const auto start = [&](auto shape) {
        using Shape = decltype(shape);
        if constexpr (Shape::kMaxPacks <= kMaxPacks) {
            blocks = blocks_for(ceil_div(args.num_rows, Shape::kRowsPerBlock), Shape::kBlocks);
            launch({"rms_norm_backward", static_cast<unsigned>(blocks), Shape::kThreads, stream},
                   rms_norm_backward_kernel<T, Shape>, args, partial);
        }
    };
    const int64_t packs = args.row_size / kPack<T>;
    const bool packed = in_packs<T>(args.row_size | args.x_groups.gap | args.dx_groups.gap, args.x, args.dy,
                                    args.weight, args.residual, args.dx, scratch);
    if (!packed || packs > kMaxPacks || !with_row_shape(packs, start)) {
        launch({"any_rms_norm_backward", static_cast<unsigned>(blocks), kThreads, stream},
               any_rms_norm_backward_kernel<T>, args, partial);
    }
    add_partial_rows(partial, blocks, args.row_size, args.dweight, stream);
}

template int64_t rms_norm_backward_scratch_bytes(const RmsNormBackward<float>&);
template int64_t rms_norm_backward_scratch_bytes(const RmsNormBackward<BFloat16>&);
template void rms_norm_backward(const RmsNormBackward<float>&, void*, GpuStream);
template void rms_norm_backward(const RmsNormBackward<BFloat16>&, void*, GpuStream);

}  // namespace argosy::kernels::cuda

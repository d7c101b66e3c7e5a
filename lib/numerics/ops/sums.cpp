#include "ops/sums.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "base/units.h"
#include "ops/kernel_calls.h"
#include "ops/numerics.h"
#include "ops/work.h"

namespace argosy::ops {
namespace {

bool has_float_kernels(const at::Tensor& x) {
    return has_kernels(x) && x.scalar_type() == at::kFloat && x.is_contiguous();
}

void kernel_row_sum(at::Tensor& sum, const at::Tensor& x) {
    const int64_t size = x.size(1);
    with_element_type(x.scalar_type(), [&]<class T>(T) {
        const T* in = rows_of<T>(x);
        const auto rows = [&](int64_t first, int64_t count, float* sums) {
            return kernels::SumRows<T>{.num_rows = count,
                                       .row_size = size,
                                       .row_stride = x.stride(0),
                                       .x = in + first * x.stride(0),
                                       .sums = sums};
        };
        if (gpu::holds(x)) {
            const auto all = rows(0, x.size(0), mutable_elements<float>(sum));
            const at::Tensor memory = scratch(gpu_kernels<T>().sum_rows_scratch_bytes(all), x);
            return gpu_kernels<T>().sum_rows(all, memory.mutable_data_ptr(), gpu::current_stream());
        }
        add_row_blocks(sum, x.size(0), [&](int64_t first, int64_t count, float* partial) {
            kernels::table().of<T>().sum_rows(rows(first, count, partial));
        });
    });
}

bool has_norm_kernels(const at::Tensor& x) {
    return has_kernels(x) && x.is_contiguous();
}

/// The kernel's arguments for `count` elements of x from `first` on.
kernels::SquaredNorm squared_norm_of(const at::Tensor& x, int64_t first, int64_t count) {
    if (x.scalar_type() == at::kFloat) return {.count = count, .x = elements<float>(x) + first};
    return {.count = count, .x = nullptr, .bf16_x = elements<kernels::BFloat16>(x) + first};
}

/// Each block of elements has a partial sum, so the result does not depend on the number of threads.
at::Tensor processor_squared_norm(const at::Tensor& x) {
    constexpr int64_t kBlock = 1 << 16;
    std::vector<double> partials(divide_up(x.numel(), kBlock));
    run_on_parts(x, std::ssize(partials), 1, [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
            const int64_t first = block * kBlock;
            partials[block] =
                kernels::table().squared_norm(squared_norm_of(x, first, std::min(kBlock, x.numel() - first)));
        }
    });
    double total = 0;
    for (const double partial : partials) total += partial;
    return at::scalar_tensor(total, x.options().dtype(at::kDouble));
}

at::Tensor plain_squared_norm(const at::Tensor& x) {
    return at::linalg_vector_norm(x, 2, std::nullopt, /*keepdim=*/false, at::kDouble).square();
}

at::Tensor gpu_squared_norms(std::span<const at::Tensor> tensors) {
    std::vector<kernels::SquaredNorm> args;
    for (const at::Tensor& x : tensors) args.push_back(squared_norm_of(x, 0, x.numel()));
    at::Tensor norms = at::empty({std::ssize(tensors)}, tensors[0].options().dtype(at::kDouble));
    const kernels::GpuTable& table = *kernels::gpu_table();
    const at::Tensor memory = scratch(table.squared_norms_scratch_bytes(args), norms);
    table.squared_norms(args, norms.mutable_data_ptr<double>(), memory.mutable_data_ptr(),
                        gpu::current_stream());
    return norms;
}

at::Tensor squared_norm(const at::Tensor& x) {
    note_pass({x});
    if (!has_norm_kernels(x)) return plain_squared_norm(x);
    return gpu::holds(x) ? gpu_squared_norms({&x, 1})[0] : processor_squared_norm(x);
}

}  // namespace

void add_row_sum(at::Tensor& sum, const at::Tensor& x) {
    note_pass({x});
    if (has_kernels(x) && has_float_kernels(sum)) return kernel_row_sum(sum, with_dense_rows(x));
    sum.add_(widened(x).sum(0));
}

at::Tensor squared_norms(std::span<const at::Tensor> tensors) {
    if (fused() && gpu::holds(tensors[0]) && std::ranges::all_of(tensors, has_norm_kernels)) {
        return gpu_squared_norms(tensors);
    }
    std::vector<at::Tensor> norms;
    for (const at::Tensor& x : tensors) norms.push_back(squared_norm(x));
    return at::stack(norms);
}

void add_row_blocks(const at::Tensor& sum, int64_t num_rows,
                    c10::function_ref<void(int64_t first_row, int64_t num_rows, float* partial)> add_rows) {
    const int64_t row_size = sum.numel(), num_blocks = divide_up(num_rows, kRowsPerBlock);
    const at::Tensor partials = at::zeros({num_blocks, row_size}, sum.options());
    auto* partial = mutable_elements<float>(partials);
    run_on_parts(sum, num_blocks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
            const int64_t first = block * kRowsPerBlock;
            add_rows(first, std::min(kRowsPerBlock, num_rows - first), partial + block * row_size);
        }
    });
    auto* total = mutable_elements<float>(sum);
    run_on_parts(sum, row_size, min_rows_per_thread(num_blocks), [&](int64_t begin, int64_t end) {
        kernels::table().fp32.sum_rows({.num_rows = num_blocks,
                                        .row_size = end - begin,
                                        .row_stride = row_size,
                                        .x = partial + begin,
                                        .sums = total + begin});
    });
}

}  // namespace argosy::ops

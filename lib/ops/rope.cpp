#include "ops/rope.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include "ops/own_kernels.h"
#include "ops/types.h"

namespace argosy::ops {
namespace {

using kernels::Turn;

at::Tensor plain(const at::Tensor& x, const RopeTable& table, Turn turn) {
    const int64_t seq_len = table.cos.size(0), half = table.cos.size(1);
    const at::Tensor pairs = widened(x).view({-1, seq_len, x.size(1) / (2 * half), 2, half});
    const at::Tensor first = pairs.select(3, 0), second = pairs.select(3, 1);
    const at::Tensor c = table.cos.unsqueeze(1);
    const at::Tensor s = (turn == Turn::Forward ? table.sin : -table.sin).unsqueeze(1);
    const at::Tensor rotated =
        at::cat({(first * c).sub_(second * s), (second * c).add_(first * s)}, /*dim=*/-1);
    return rotated.view(x.sizes()).to(x.scalar_type());
}

/// `y` may be `x`.
void rotate(const at::Tensor& x, const at::Tensor& y, const RopeTable& table, Turn turn) {
    const int64_t size = x.size(1), half = table.cos.size(1);
    with_element_type(x.scalar_type(), [&]<class T>(T) {
        const T* in = elements<T>(x);
        T* out = mutable_elements<T>(y);
        const float *cos = elements<float>(table.cos), *sin = elements<float>(table.sin);
        const auto rows = [&](int64_t begin, int64_t end) {
            return kernels::Rope<T>{.num_rows = end - begin,
                                    .num_heads = size / (2 * half),
                                    .half = half,
                                    .first_row = begin,
                                    .seq_len = table.cos.size(0),
                                    .turn = turn,
                                    .cos = cos,
                                    .sin = sin,
                                    .x = in + begin * size,
                                    .y = out + begin * size};
        };
        if (gpu::holds(x)) return gpu_kernels<T>().rope(rows(0, x.size(0)), gpu::current_stream());
        at::parallel_for(0, x.size(0), fewest_rows(size), [&](int64_t begin, int64_t end) {
            kernels::table().of<T>().rope(rows(begin, end));
        });
    });
}

at::Tensor turned(const at::Tensor& x, const RopeTable& table, Turn turn) {
    if (!has_kernels(x)) return plain(x, table, turn);
    const at::Tensor input = x.contiguous();
    at::Tensor y = at::empty_like(input);
    rotate(input, y, table, turn);
    return y;
}

at::Tensor turned_in_place(at::Tensor&& x, const RopeTable& table, Turn turn) {
    // Others may hold the same memory: then it is not the caller's to give away.
    if (!has_kernels(x) || !x.is_contiguous() || x.use_count() > 1 || !x.storage().unique()) {
        return turned(x, table, turn);
    }
    rotate(x, x, table, turn);
    return std::move(x);
}

}  // namespace

RopeTable make_rope_table(const std::vector<double>& frequencies, int64_t seq_len,
                          const at::TensorOptions& options) {
    const at::Tensor positions = at::arange(seq_len, at::kDouble);
    const at::Tensor angles = positions.outer(at::tensor(frequencies, at::kDouble));
    return {angles.cos().to(options), angles.sin().to(options)};
}

at::Tensor rope(const at::Tensor& x, const RopeTable& table) { return turned(x, table, Turn::Forward); }

at::Tensor rope(at::Tensor&& x, const RopeTable& table) {
    return turned_in_place(std::move(x), table, Turn::Forward);
}

at::Tensor rope_backward(const at::Tensor& dy, const RopeTable& table) {
    return turned(dy, table, Turn::Back);
}

at::Tensor rope_backward(at::Tensor&& dy, const RopeTable& table) {
    return turned_in_place(std::move(dy), table, Turn::Back);
}

}  // namespace argosy::ops

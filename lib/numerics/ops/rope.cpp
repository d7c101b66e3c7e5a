#include "ops/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index.h>
#include <ATen/ops/tensor.h>

#include "ops/kernel_calls.h"
#include "ops/numerics.h"
#include "ops/work.h"

namespace argosy::ops {
namespace {

using kernels::Rotation;

int64_t head_dim_of(const RopeTable& table) {
    return table.head_dim > 0 ? table.head_dim : 2 * table.cos.size(1);
}

at::Tensor plain_rotation(const at::Tensor& x, const RopeTable& table, const at::Tensor& positions,
                          Rotation rotation) {
    const int64_t half = table.cos.size(1), rows = positions.defined() ? x.size(0) : table.cos.size(0);
    const auto angles = [&](const at::Tensor& values) {
        return (positions.defined() ? at::index(values, {positions}) : values).unsqueeze(1);
    };
    const int64_t head_dim = head_dim_of(table);
    const at::Tensor heads = widened(x).view({-1, rows, x.size(1) / head_dim, head_dim});
    const at::Tensor first = heads.narrow(3, 0, half), second = heads.narrow(3, half, half);
    const at::Tensor c = angles(table.cos),
                     s = angles(rotation == Rotation::Forward ? table.sin : -table.sin);
    const at::Tensor rotated = at::cat({(first * c).sub_(second * s), (second * c).add_(first * s),
                                        heads.narrow(3, 2 * half, head_dim - 2 * half)},
                                       /*dim=*/-1);
    return rotated.view(x.sizes()).to(x.scalar_type());
}

/// REQUIRES: the rows of x and y are dense. y may be x.
void kernel_rotation(const at::Tensor& y, const at::Tensor& x, const RopeTable& table,
                     const at::Tensor& positions, Rotation rotation) {
    const int64_t size = x.size(1), half = table.cos.size(1), head_dim = head_dim_of(table);
    with_element_type(x.scalar_type(), [&]<class T>(T) {
        const T* in = rows_of<T>(x);
        T* out = mutable_rows_of<T>(y);
        const float *cos = elements<float>(table.cos), *sin = elements<float>(table.sin);
        const int64_t* place = positions.defined() ? elements<int64_t>(positions) : nullptr;
        const auto rows = [&](int64_t begin, int64_t end) {
            return kernels::Rope<T>{.num_rows = end - begin,
                                    .num_heads = size / head_dim,
                                    .half = half,
                                    .first_row = begin,
                                    .seq_len = table.cos.size(0),
                                    .rotation = rotation,
                                    .cos = cos,
                                    .sin = sin,
                                    .x = in + begin * x.stride(0),
                                    .x_stride = x.stride(0),
                                    .y = out + begin * y.stride(0),
                                    .y_stride = y.stride(0),
                                    .positions = place != nullptr ? place + begin : nullptr,
                                    .num_unrotated = head_dim - 2 * half};
        };
        run_on_rows<T>(&kernels::TypedKernels<T>::rope, &kernels::GpuTypedKernels<T>::rope, x, x.size(0),
                       size, rows);
    });
}

void write_rotated(const at::Tensor& y, const at::Tensor& x, const RopeTable& table,
                   const at::Tensor& positions, Rotation rotation) {
    ARGOSY_CHECK(y.sizes() == x.sizes(), "RoPE: x and y have different shapes");
    note_pass({x, y});
    if (has_kernels(x)) {
        kernel_rotation(y, with_dense_rows(x), table, positions, rotation);
    } else {
        y.copy_(plain_rotation(x, table, positions, rotation));
    }
}

}  // namespace

RopeTable make_rope_table(const std::vector<double>& frequencies, double attention_factor, int64_t seq_len,
                          const at::TensorOptions& options) {
    if (options.device().is_meta()) {
        const auto empty = [&] { return at::empty({seq_len, std::ssize(frequencies)}, options); };
        return {empty(), empty()};
    }
    const at::Tensor positions = at::arange(seq_len, at::kDouble);
    const at::Tensor angles = positions.outer(at::tensor(frequencies, at::kDouble));
    return {angles.cos().mul_(attention_factor).to(options), angles.sin().mul_(attention_factor).to(options)};
}

void write_rope(const at::Tensor& y, const at::Tensor& x, const RopeTable& table,
                const at::Tensor& positions) {
    write_rotated(y, x, table, positions, Rotation::Forward);
}

void write_rope_backward(const at::Tensor& dx, const at::Tensor& dy, const RopeTable& table,
                         const at::Tensor& positions) {
    write_rotated(dx, dy, table, positions, Rotation::Backward);
}

}  // namespace argosy::ops

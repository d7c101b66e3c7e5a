#include "ops/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <utility>
#include <vector>

#include "ops/gpu_casts.h"
#include "ops/kernel_calls.h"
#include "ops/numerics.h"
#include "ops/sums.h"
#include "ops/work.h"

namespace argosy::ops {
namespace {

RmsNormOutput plain_forward(const at::Tensor& x, const Norm& norm) {
    const at::Tensor wide = widened(x);
    at::Tensor inverse_rms = wide.square().mean(-1, /*keepdim=*/true).add_(norm.eps).rsqrt_();
    at::Tensor y = (wide * inverse_rms).mul_(widened(norm.weight) + norm.weight_offset);
    return {y.to(x.scalar_type()), std::move(inverse_rms)};
}

// dx = r (dy w - n mean(dy w n)) + residual,  dw = sum over rows of dy n,  where r = inverse_rms, n = x r and
// w = weight + weight_offset.
RmsNormGradient plain_backward(const at::Tensor& dy, const at::Tensor& x, const Norm& norm,
                               const at::Tensor& inverse_rms, const at::Tensor& residual) {
    const at::Tensor wide_dy = widened(dy);
    const at::Tensor normed = widened(x) * inverse_rms;
    const at::Tensor weighted = wide_dy * (widened(norm.weight) + norm.weight_offset);
    const at::Tensor projection = (weighted * normed).mean(-1, /*keepdim=*/true);
    at::Tensor dx = (weighted - normed * projection).mul_(inverse_rms).to(x.scalar_type());
    at::Tensor dw = (wide_dy * normed).reshape({-1, x.size(-1)}).sum(0);
    if (residual.defined()) dx.add_(residual);
    return {std::move(dx), std::move(dw)};
}

/// Whether the rows of x are contiguous, or x is [groups, rows, n] with contiguous rows in each group.
bool has_rows_in_groups(const at::Tensor& x) {
    return x.is_contiguous() || (x.dim() == 3 && x.stride(2) == 1 && x.stride(1) == x.size(2));
}
at::Tensor with_rows_in_groups(const at::Tensor& x) { return has_rows_in_groups(x) ? x : x.contiguous(); }

/// The positions of the rows of x in memory, for a kernel that begins at any row.
class Rows {
  public:
    /// REQUIRES: has_rows_in_groups(x).
    explicit Rows(const at::Tensor& x) : row_size_(x.size(-1)) {
        ARGOSY_CHECK(has_rows_in_groups(x), "rows that are not in groups");
        if (x.is_contiguous()) return;
        rows_per_group_ = x.size(1);
        gap_ = x.stride(0) - rows_per_group_ * row_size_;
    }
    int64_t begin_of(int64_t row) const { return row * row_size_ + row / rows_per_group_ * gap_; }
    kernels::RowGroups from(int64_t row) const { return {rows_per_group_, gap_, row % rows_per_group_}; }

  private:
    int64_t row_size_, rows_per_group_ = 1, gap_ = 0;
};

/// REQUIRES: has_rows_in_groups(x).
RmsNormOutput kernel_forward(const at::Tensor& x, const Norm& norm, at::Tensor* largest) {
    const int64_t size = x.size(-1), num_rows = x.numel() / size;
    std::vector<int64_t> rows_shape = x.sizes().vec();
    rows_shape.back() = 1;
    RmsNormOutput output{at::empty(x.sizes(), x.options()),
                         at::empty(rows_shape, x.options().dtype(at::kFloat))};
    const Rows x_rows(x);
    with_element_type(x.scalar_type(), [&]<class T>(T) {
        const auto* in = first_element<T>(x);
        const T* weight = elements<T>(norm.weight);
        T* out = mutable_elements<T>(output.y);
        auto* inverse = mutable_elements<float>(output.inverse_rms);
        const auto rows = [&](int64_t begin, int64_t end) {
            return kernels::RmsNorm<T>{.num_rows = end - begin,
                                       .row_size = size,
                                       .x = in + x_rows.begin_of(begin),
                                       .weight = weight,
                                       .eps = static_cast<float>(norm.eps),
                                       .y = out + begin * size,
                                       .inverse_rms = inverse + begin,
                                       .x_groups = x_rows.from(begin),
                                       .weight_offset = static_cast<float>(norm.weight_offset)};
        };
        run_on_rows<T>(&kernels::TypedKernels<T>::rms_norm, &kernels::GpuTypedKernels<T>::rms_norm, x,
                       num_rows, size, rows, start_largest(largest, x));
    });
    return output;
}

struct BackwardInputs {
    const at::Tensor &dy, &x, &inverse_rms, &residual;
    const Norm& norm;
};

/// Writes dx and returns dw. REQUIRES: x and dx have rows in groups, and all other inputs are contiguous.
at::Tensor kernel_backward(const at::Tensor& dx, const BackwardInputs& inputs) {
    const at::Tensor& x = inputs.x;
    ARGOSY_CHECK(dx.sizes() == x.sizes() && dx.scalar_type() == x.scalar_type(), "dx of another kind than x");
    const int64_t size = x.size(-1), num_rows = x.numel() / size;
    at::Tensor dw = at::zeros({size}, x.options().dtype(at::kFloat));
    const Rows x_rows(x), dx_rows(dx);
    with_element_type(x.scalar_type(), [&]<class T>(T) {
        const auto* in = first_element<T>(x);
        const T *dy = elements<T>(inputs.dy), *weight = elements<T>(inputs.norm.weight),
                *residual = elements<T>(inputs.residual);
        const auto weight_offset = static_cast<float>(inputs.norm.weight_offset);
        auto* out = mutable_first_element<T>(dx);
        const auto* inverse = elements<float>(inputs.inverse_rms);
        const auto rows = [&](int64_t first, int64_t count, float* dweight) {
            const int64_t begin = first * size;
            return kernels::RmsNormBackward<T>{.num_rows = count,
                                               .row_size = size,
                                               .dy = dy + begin,
                                               .x = in + x_rows.begin_of(first),
                                               .weight = weight,
                                               .inverse_rms = inverse + first,
                                               .residual = residual == nullptr ? nullptr : residual + begin,
                                               .dx = out + dx_rows.begin_of(first),
                                               .dweight = dweight,
                                               .x_groups = x_rows.from(first),
                                               .dx_groups = dx_rows.from(first),
                                               .weight_offset = weight_offset};
        };
        if (gpu::holds(dw)) {
            const auto all = rows(0, num_rows, mutable_elements<float>(dw));
            const at::Tensor memory = scratch(gpu_kernels<T>().rms_norm_backward_scratch_bytes(all), dw);
            return gpu_kernels<T>().rms_norm_backward(all, memory.mutable_data_ptr(), gpu::current_stream());
        }
        add_row_blocks(dw, num_rows, [&](int64_t first, int64_t count, float* dweight) {
            kernels::table().of<T>().rms_norm_backward(rows(first, count, dweight));
        });
    });
    return dw;
}

RmsNormGradient new_gradient(const BackwardInputs& inputs) {
    RmsNormGradient gradient{at::empty(inputs.x.sizes(), inputs.x.options()), {}};
    gradient.dw = kernel_backward(gradient.dx, inputs);
    return gradient;
}

}  // namespace

RmsNormOutput rms_norm(const at::Tensor& x, const Norm& norm, at::Tensor* largest) {
    note_pass({x, x});
    if (!has_kernels(x)) return plain_forward(x, norm);
    return kernel_forward(with_rows_in_groups(x), norm, largest);
}

RmsNormGradient rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const Norm& norm,
                                  const at::Tensor& inverse_rms, const at::Tensor& residual) {
    note_pass({x, x, dy, residual});
    if (!has_kernels(x)) return plain_backward(dy, x, norm, inverse_rms, residual);
    const bool kernel_adds = residual.defined() && fused();
    RmsNormGradient gradient = new_gradient({dy.contiguous(), with_rows_in_groups(x), inverse_rms,
                                             kernel_adds ? residual.contiguous() : at::Tensor(), norm});
    if (residual.defined() && !kernel_adds) gradient.dx.add_(residual);
    return gradient;
}

at::Tensor write_rms_norm_backward(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x,
                                   const Norm& norm, const at::Tensor& inverse_rms) {
    note_pass({x, dx, dy});
    if (has_kernels(x)) {
        return kernel_backward(dx,
                               {dy.contiguous(), with_rows_in_groups(x), inverse_rms, /*residual=*/{}, norm});
    }
    auto [gradient, dw] = plain_backward(dy, x, norm, inverse_rms, /*residual=*/{});
    dx.copy_(gradient);
    return dw;
}

}  // namespace argosy::ops

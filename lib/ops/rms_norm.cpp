#include "ops/rms_norm.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <utility>
#include <vector>

#include "ops/own_kernels.h"
#include "ops/row_blocks.h"
#include "ops/types.h"

namespace argosy::ops {
namespace {

RmsNormOutput plain_forward(const at::Tensor& x, const at::Tensor& weight, double eps) {
    const at::Tensor wide = widened(x);
    at::Tensor inverse_rms = wide.square().mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
    at::Tensor y = (wide * inverse_rms).mul_(widened(weight));
    return {y.to(x.scalar_type()), std::move(inverse_rms)};
}

// With r = inverse_rms and n = x r:  dx = r (dy w - n mean(dy w n)) + residual,  dw = sum over rows of dy n.
RmsNormGradient plain_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& inverse_rms, const at::Tensor& residual) {
    const at::Tensor wide_dy = widened(dy);
    const at::Tensor normed = widened(x) * inverse_rms;
    const at::Tensor weighted = wide_dy * widened(weight);
    const at::Tensor projection = (weighted * normed).mean(-1, /*keepdim=*/true);
    at::Tensor dx = (weighted - normed * projection).mul_(inverse_rms).to(x.scalar_type());
    at::Tensor dw = (wide_dy * normed).reshape({-1, x.size(-1)}).sum(0);
    if (residual.defined()) dx.add_(residual);
    return {std::move(dx), std::move(dw)};
}

/// Of x, or of x + delta, which goes to `sum`; both undefined without.
RmsNormOutput own_forward(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& sum,
                          const at::Tensor& weight, double eps) {
    const int64_t size = x.size(-1), num_rows = x.numel() / size;
    std::vector<int64_t> rows_shape = x.sizes().vec();
    rows_shape.back() = 1;
    RmsNormOutput output{at::empty_like(x), at::empty(rows_shape, x.options().dtype(at::kFloat))};
    with_element_type(x.scalar_type(), [&]<class T>(T) {
        const T *in = elements<T>(x), *added = elements<T>(delta), *scale = elements<T>(weight);
        T *total = mutable_elements<T>(sum), *out = mutable_elements<T>(output.y);
        auto* inverse = mutable_elements<float>(output.inverse_rms);
        const auto rows = [&](int64_t begin, int64_t end) {
            return kernels::RmsNorm<T>{.num_rows = end - begin,
                                       .row_size = size,
                                       .x = in + begin * size,
                                       .residual = added == nullptr ? nullptr : added + begin * size,
                                       .sum = total == nullptr ? nullptr : total + begin * size,
                                       .weight = scale,
                                       .eps = static_cast<float>(eps),
                                       .y = out + begin * size,
                                       .inverse_rms = inverse + begin};
        };
        if (gpu::holds(x)) return gpu_kernels<T>().rms_norm(rows(0, num_rows), gpu::current_stream());
        at::parallel_for(0, num_rows, fewest_rows(size), [&](int64_t begin, int64_t end) {
            kernels::table().of<T>().rms_norm(rows(begin, end));
        });
    });
    return output;
}

RmsNormGradient own_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& inverse_rms, const at::Tensor& residual) {
    const int64_t size = x.size(-1);
    RmsNormGradient gradient{at::empty_like(x), at::zeros({size}, x.options().dtype(at::kFloat))};
    with_element_type(x.scalar_type(), [&]<class T>(T) {
        const T *upper = elements<T>(dy), *in = elements<T>(x), *scale = elements<T>(weight),
                *other = elements<T>(residual);
        T* out = mutable_elements<T>(gradient.dx);
        const auto* inverse = elements<float>(inverse_rms);
        const auto rows = [&](int64_t first, int64_t count, float* dweight) {
            const int64_t begin = first * size;
            return kernels::RmsNormBackward<T>{.num_rows = count,
                                               .row_size = size,
                                               .dy = upper + begin,
                                               .x = in + begin,
                                               .weight = scale,
                                               .inverse_rms = inverse + first,
                                               .residual = other == nullptr ? nullptr : other + begin,
                                               .dx = out + begin,
                                               .dweight = dweight};
        };
        const int64_t num_rows = x.numel() / size;
        if (gpu::holds(x)) {
            const auto all = rows(0, num_rows, mutable_elements<float>(gradient.dw));
            const at::Tensor memory = scratch(gpu_kernels<T>().rms_norm_backward_scratch_bytes(all), x);
            return gpu_kernels<T>().rms_norm_backward(all, memory.mutable_data_ptr(), gpu::current_stream());
        }
        add_row_blocks(gradient.dw, num_rows, [&](int64_t first, int64_t count, float* dweight) {
            kernels::table().of<T>().rms_norm_backward(rows(first, count, dweight));
        });
    });
    return gradient;
}

}  // namespace

RmsNormOutput rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
    if (!has_kernels(x)) return plain_forward(x, weight, eps);
    return own_forward(x.contiguous(), {}, {}, weight, eps);
}

AddRmsNormOutput add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                              double eps) {
    if (!has_kernels(x) || !fused()) {
        at::Tensor sum = x + delta;
        RmsNormOutput norm = rms_norm(sum, weight, eps);
        return {std::move(sum), std::move(norm)};
    }
    const at::Tensor input = x.contiguous();
    at::Tensor sum = at::empty_like(input);
    RmsNormOutput norm = own_forward(input, delta.contiguous(), sum, weight, eps);
    return {std::move(sum), std::move(norm)};
}

RmsNormGradient rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                  const at::Tensor& inverse_rms, const at::Tensor& residual) {
    if (!has_kernels(x)) return plain_backward(dy, x, weight, inverse_rms, residual);
    if (!residual.defined() || fused()) {
        return own_backward(dy.contiguous(), x.contiguous(), weight, inverse_rms,
                            residual.defined() ? residual.contiguous() : residual);
    }
    RmsNormGradient gradient = own_backward(dy.contiguous(), x.contiguous(), weight, inverse_rms, {});
    gradient.dx.add_(residual);
    return gradient;
}

}  // namespace argosy::ops

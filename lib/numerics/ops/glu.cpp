#include "ops/glu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "ops/gpu_casts.h"
#include "ops/kernel_calls.h"
#include "ops/numerics.h"
#include "ops/work.h"

namespace argosy::ops {
namespace {

at::Tensor gate_of(const at::Tensor& gate_up) { return gate_up.narrow(1, 0, gate_up.size(1) / 2); }
at::Tensor up_of(const at::Tensor& gate_up) {
    return gate_up.narrow(1, gate_up.size(1) / 2, gate_up.size(1) / 2);
}

/// The a of activation(gate) = gate sigmoid(a); with 3 * kGeluCubic it is gate da / dgate.
at::Tensor sigmoid_argument(const at::Tensor& gate, Activation activation,
                            double cubic = kernels::kGeluCubic) {
    if (activation == Activation::Silu) return gate;
    return gate.square().mul_(cubic).add_(kernels::kGeluLinear).mul_(gate);
}

/// y before it is rounded.
at::Tensor wide_forward(const at::Tensor& gate_up, Activation activation) {
    const at::Tensor gate = widened(gate_of(gate_up));
    at::Tensor value = sigmoid_argument(gate, activation).sigmoid().mul_(gate);
    return value.mul_(widened(up_of(gate_up)));
}

at::Tensor plain_forward(const at::Tensor& gate_up, Activation activation) {
    return wide_forward(gate_up, activation).to(gate_up.scalar_type());
}

// d activation / d gate = s (1 + b (1 - s)), where s = sigmoid(a) and b = gate da / dgate.
at::Tensor plain_backward(const at::Tensor& wide_dy, const at::Tensor& gate_up, Activation activation) {
    const at::Tensor gate = widened(gate_of(gate_up));
    const at::Tensor sigmoid = sigmoid_argument(gate, activation).sigmoid();
    const at::Tensor b = sigmoid_argument(gate, activation, 3 * kernels::kGeluCubic);
    const at::Tensor slope = (1 - sigmoid).mul_(b).add_(1).mul_(sigmoid);
    const at::Tensor dgate = slope.mul_(wide_dy).mul_(widened(up_of(gate_up))).to(gate_up.scalar_type());
    const at::Tensor dup = (sigmoid * gate).mul_(wide_dy).to(gate_up.scalar_type());
    return at::cat({dgate, dup}, /*dim=*/1);
}

/// REQUIRES: the rows of gate_up are dense.
at::Tensor kernel_forward(const at::Tensor& gate_up, Activation activation, at::Tensor* largest,
                          const at::Tensor& weights = {}) {
    const int64_t size = gate_up.size(1) / 2, stride = gate_up.stride(0);
    at::Tensor y = at::empty({gate_up.size(0), size}, gate_up.options());
    with_element_type(gate_up.scalar_type(), [&]<class T>(T) {
        const T* gate = rows_of<T>(gate_up);
        const auto* weight = elements<float>(weights);
        T* out = mutable_elements<T>(y);
        const auto rows = [=](int64_t begin, int64_t end) {
            return kernels::Glu<T>{.activation = activation,
                                   .num_rows = end - begin,
                                   .row_size = size,
                                   .gate = gate + begin * stride,
                                   .up = gate + begin * stride + size,
                                   .stride = stride,
                                   .y = out + begin * size,
                                   .weights = weight != nullptr ? weight + begin : nullptr};
        };
        run_on_rows<T>(&kernels::TypedKernels<T>::glu, &kernels::GpuTypedKernels<T>::glu, y, y.size(0), size,
                       rows, start_largest(largest, gate_up));
    });
    return y;
}

/// REQUIRES: dy and gate_up are contiguous. With weights, writes dweights.
at::Tensor kernel_backward(const at::Tensor& dy, const at::Tensor& gate_up, Activation activation,
                           at::Tensor* largest, const at::Tensor& weights = {},
                           const at::Tensor& dweights = {}) {
    const int64_t size = dy.size(1), stride = gate_up.size(1);
    at::Tensor gradient = at::empty_like(gate_up);
    with_element_type(dy.scalar_type(), [&]<class T>(T) {
        const T *upper = elements<T>(dy), *gate = elements<T>(gate_up);
        const auto* weight = elements<float>(weights);
        auto* dweight = mutable_elements<float>(dweights);
        T* dgate = mutable_elements<T>(gradient);
        const auto rows = [=](int64_t begin, int64_t end) {
            return kernels::GluBackward<T>{.activation = activation,
                                           .num_rows = end - begin,
                                           .row_size = size,
                                           .dy = upper + begin * size,
                                           .gate = gate + begin * stride,
                                           .up = gate + begin * stride + size,
                                           .dgate = dgate + begin * stride,
                                           .dup = dgate + begin * stride + size,
                                           .stride = stride,
                                           .weights = weight != nullptr ? weight + begin : nullptr,
                                           .dweights = weight != nullptr ? dweight + begin : nullptr};
        };
        run_on_rows<T>(&kernels::TypedKernels<T>::glu_backward, &kernels::GpuTypedKernels<T>::glu_backward,
                       dy, dy.size(0), size, rows, start_largest(largest, gate_up));
    });
    return gradient;
}

}  // namespace

at::Tensor glu(const at::Tensor& gate_up, Activation activation, at::Tensor* largest) {
    at::Tensor y = has_kernels(gate_up) ? kernel_forward(with_dense_rows(gate_up), activation, largest)
                                        : plain_forward(gate_up, activation);
    note_pass({gate_up, y});
    return y;
}

at::Tensor glu_backward(const at::Tensor& dy, const at::Tensor& gate_up, Activation activation,
                        at::Tensor* largest) {
    note_pass({gate_up, gate_up, dy});
    if (!has_kernels(gate_up)) return plain_backward(widened(dy), gate_up, activation);
    return kernel_backward(dy.contiguous(), gate_up.contiguous(), activation, largest);
}

at::Tensor weighted_glu(const at::Tensor& gate_up, const at::Tensor& weights, Activation activation) {
    at::Tensor y =
        has_kernels(gate_up)
            ? kernel_forward(with_dense_rows(gate_up), activation, nullptr, weights.contiguous())
            : wide_forward(gate_up, activation).mul_(weights.unsqueeze(1)).to(gate_up.scalar_type());
    note_pass({gate_up, weights, y});
    return y;
}

WeightedGluGradient weighted_glu_backward(const at::Tensor& dy, const at::Tensor& gate_up,
                                          const at::Tensor& weights, Activation activation) {
    note_pass({gate_up, gate_up, dy, weights, weights});
    if (!has_kernels(gate_up)) {
        const at::Tensor wide_dy = widened(dy);
        return {plain_backward(wide_dy * weights.unsqueeze(1), gate_up, activation),
                wide_forward(gate_up, activation).mul_(wide_dy).sum(1)};
    }
    const at::Tensor dweights = at::empty({weights.size(0)}, weights.options());
    return {kernel_backward(dy.contiguous(), gate_up.contiguous(), activation, nullptr, weights.contiguous(),
                            dweights),
            dweights};
}

}  // namespace argosy::ops

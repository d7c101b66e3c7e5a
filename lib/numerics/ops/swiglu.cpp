#include "ops/swiglu.h"

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

at::Tensor plain_forward(const at::Tensor& gate_up) {
    const at::Tensor gate = widened(gate_of(gate_up));
    return (gate.sigmoid().mul_(gate)).mul_(widened(up_of(gate_up))).to(gate_up.scalar_type());
}

// d silu(gate) / d gate = s (1 + gate (1 - s)), where s = sigmoid(gate).
at::Tensor plain_backward(const at::Tensor& dy, const at::Tensor& gate_up) {
    const at::Tensor wide_dy = widened(dy), gate = widened(gate_of(gate_up));
    const at::Tensor sigmoid = gate.sigmoid();
    const at::Tensor slope = (1 - sigmoid).mul_(gate).add_(1).mul_(sigmoid);
    const at::Tensor dgate = slope.mul_(wide_dy).mul_(widened(up_of(gate_up))).to(gate_up.scalar_type());
    const at::Tensor dup = (sigmoid * gate).mul_(wide_dy).to(gate_up.scalar_type());
    return at::cat({dgate, dup}, /*dim=*/1);
}

/// REQUIRES: the rows of gate_up are dense.
at::Tensor kernel_forward(const at::Tensor& gate_up, at::Tensor* largest) {
    const int64_t size = gate_up.size(1) / 2, stride = gate_up.stride(0);
    at::Tensor y = at::empty({gate_up.size(0), size}, gate_up.options());
    with_element_type(gate_up.scalar_type(), [&]<class T>(T) {
        const T* gate = rows_of<T>(gate_up);
        T* out = mutable_elements<T>(y);
        const auto rows = [=](int64_t begin, int64_t end) {
            return kernels::Swiglu<T>{.num_rows = end - begin,
                                      .row_size = size,
                                      .gate = gate + begin * stride,
                                      .up = gate + begin * stride + size,
                                      .stride = stride,
                                      .y = out + begin * size};
        };
        run_on_rows<T>(&kernels::TypedKernels<T>::swiglu, &kernels::GpuTypedKernels<T>::swiglu, y, y.size(0),
                       size, rows, start_largest(largest, gate_up));
    });
    return y;
}

/// REQUIRES: dy and gate_up are contiguous.
at::Tensor kernel_backward(const at::Tensor& dy, const at::Tensor& gate_up, at::Tensor* largest) {
    const int64_t size = dy.size(1), stride = gate_up.size(1);
    at::Tensor gradient = at::empty_like(gate_up);
    with_element_type(dy.scalar_type(), [&]<class T>(T) {
        const T *upper = elements<T>(dy), *gate = elements<T>(gate_up);
        T* dgate = mutable_elements<T>(gradient);
        const auto rows = [=](int64_t begin, int64_t end) {
            return kernels::SwigluBackward<T>{.num_rows = end - begin,
                                              .row_size = size,
                                              .dy = upper + begin * size,
                                              .gate = gate + begin * stride,
                                              .up = gate + begin * stride + size,
                                              .dgate = dgate + begin * stride,
                                              .dup = dgate + begin * stride + size,
                                              .stride = stride};
        };
        run_on_rows<T>(&kernels::TypedKernels<T>::swiglu_backward,
                       &kernels::GpuTypedKernels<T>::swiglu_backward, dy, dy.size(0), size, rows,
                       start_largest(largest, gate_up));
    });
    return gradient;
}

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_up, at::Tensor* largest) {
    at::Tensor y =
        has_kernels(gate_up) ? kernel_forward(with_dense_rows(gate_up), largest) : plain_forward(gate_up);
    note_pass({gate_up, y});
    return y;
}

at::Tensor swiglu_backward(const at::Tensor& dy, const at::Tensor& gate_up, at::Tensor* largest) {
    note_pass({gate_up, gate_up, dy});
    if (!has_kernels(gate_up)) return plain_backward(dy, gate_up);
    return kernel_backward(dy.contiguous(), gate_up.contiguous(), largest);
}

}  // namespace argosy::ops

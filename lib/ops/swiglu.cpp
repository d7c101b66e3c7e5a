#include "ops/swiglu.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>

#include <utility>

#include "ops/own_kernels.h"
#include "ops/types.h"

namespace argosy::ops {
namespace {

at::Tensor plain_forward(const at::Tensor& gate, const at::Tensor& up) {
    const at::Tensor wide = widened(gate);
    return (wide.sigmoid().mul_(wide)).mul_(widened(up)).to(gate.scalar_type());
}

// With s = sigmoid(gate): d silu / d gate = s (1 + gate (1 - s)).
SwigluGradient plain_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up) {
    const at::Tensor wide_dy = widened(dy), wide_gate = widened(gate);
    const at::Tensor sigmoid = wide_gate.sigmoid();
    const at::Tensor slope = (1 - sigmoid).mul_(wide_gate).add_(1).mul_(sigmoid);
    at::Tensor dgate = slope.mul_(wide_dy).mul_(widened(up)).to(gate.scalar_type());
    at::Tensor dup = (sigmoid * wide_gate).mul_(wide_dy).to(gate.scalar_type());
    return {std::move(dgate), std::move(dup)};
}

at::Tensor own_forward(const at::Tensor& gate, const at::Tensor& up) {
    at::Tensor y = at::empty_like(gate);
    with_element_type(gate.scalar_type(), [&]<class T>(T) {
        const T *gates = elements<T>(gate), *ups = elements<T>(up);
        T* out = mutable_elements<T>(y);
        const auto part = [=](int64_t begin, int64_t end) {
            return kernels::Swiglu<T>{
                .count = end - begin, .gate = gates + begin, .up = ups + begin, .y = out + begin};
        };
        if (gpu::holds(gate)) return gpu_kernels<T>().swiglu(part(0, gate.numel()), gpu::current_stream());
        at::parallel_for(0, gate.numel(), kFewestElements, [&](int64_t begin, int64_t end) {
            kernels::table().of<T>().swiglu(part(begin, end));
        });
    });
    return y;
}

SwigluGradient own_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up) {
    SwigluGradient gradient{at::empty_like(gate), at::empty_like(up)};
    with_element_type(gate.scalar_type(), [&]<class T>(T) {
        const T *upper = elements<T>(dy), *gates = elements<T>(gate), *ups = elements<T>(up);
        T *dgate = mutable_elements<T>(gradient.dgate), *dup = mutable_elements<T>(gradient.dup);
        const auto part = [=](int64_t begin, int64_t end) {
            return kernels::SwigluBackward<T>{.count = end - begin,
                                              .dy = upper + begin,
                                              .gate = gates + begin,
                                              .up = ups + begin,
                                              .dgate = dgate + begin,
                                              .dup = dup + begin};
        };
        if (gpu::holds(gate)) {
            return gpu_kernels<T>().swiglu_backward(part(0, gate.numel()), gpu::current_stream());
        }
        at::parallel_for(0, gate.numel(), kFewestElements, [&](int64_t begin, int64_t end) {
            kernels::table().of<T>().swiglu_backward(part(begin, end));
        });
    });
    return gradient;
}

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
    if (!has_kernels(gate)) return plain_forward(gate, up);
    return own_forward(gate.contiguous(), up.contiguous());
}

SwigluGradient swiglu_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up) {
    if (!has_kernels(gate)) return plain_backward(dy, gate, up);
    return own_backward(dy.contiguous(), gate.contiguous(), up.contiguous());
}

}  // namespace argosy::ops

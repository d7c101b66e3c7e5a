#include "ops/matmul.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

namespace argosy::ops {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight) { return at::mm(x, weight.t()); }

at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight) {
    return at::mm(dy, weight);
}

void add_linear_input_gradient(at::Tensor& sum, const at::Tensor& dy, const at::Tensor& weight) {
    sum.addmm_(dy, weight);
}

void linear_weight_gradient(at::Tensor& out, const at::Tensor& dy, const at::Tensor& x, bool accumulate) {
    if (out.scalar_type() == dy.scalar_type()) {
        if (accumulate) {
            out.addmm_(dy.t(), x);
        } else {
            at::mm_out(out, dy.t(), x);
        }
        return;
    }
    const at::Tensor product = at::mm(dy.t(), x);
    if (accumulate) {
        out.add_(product);
    } else {
        out.copy_(product);
    }
}

}  // namespace argosy::ops

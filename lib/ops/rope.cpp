#include "ops/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include "ops/types.h"

namespace argosy::ops {
namespace {

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
    const int64_t seq_len = cos.size(0), half = cos.size(1);
    const at::Tensor pairs = widened(x).view({-1, seq_len, x.size(1) / (2 * half), 2, half});
    const at::Tensor first = pairs.select(3, 0), second = pairs.select(3, 1);
    const at::Tensor c = cos.unsqueeze(1), s = sin.unsqueeze(1);
    const at::Tensor rotated =
        at::cat({(first * c).sub_(second * s), (second * c).add_(first * s)}, /*dim=*/-1);
    return rotated.view(x.sizes()).to(x.scalar_type());
}

}  // namespace

RopeTable make_rope_table(const std::vector<double>& frequencies, int64_t seq_len, at::ScalarType type) {
    const at::Tensor positions = at::arange(seq_len, at::kDouble);
    const at::Tensor angles = positions.outer(at::tensor(frequencies, at::kDouble));
    return {angles.cos().to(type), angles.sin().to(type)};
}

at::Tensor rope(const at::Tensor& x, const RopeTable& table) { return rotate(x, table.cos, table.sin); }

at::Tensor rope_backward(const at::Tensor& dy, const RopeTable& table) {
    return rotate(dy, table.cos, -table.sin);
}

}  // namespace argosy::ops

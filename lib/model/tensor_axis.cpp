#include "model/tensor_axis.h"

#include "ops/matmul.h"

namespace argosy::model {

std::vector<at::Tensor> TensorAxis::column(const at::Tensor& x, std::span<const Column> columns) const {
    const at::Tensor x_all = gather_rows(x);
    std::vector<at::Tensor> ys;
    for (const auto& [weight, bias] : columns) ys.push_back(ops::linear(x_all, weight, bias));
    return ys;
}

TensorAxis::ColumnGradient TensorAxis::column_backward(const at::Tensor& x, std::span<const at::Tensor> dys,
                                                       std::span<const at::Tensor> weights) const {
    return {reduce_rows(ops::linear_input_gradient(dys, weights)), gather_rows(x)};
}

at::Tensor TensorAxis::row(const at::Tensor& x, const at::Tensor& weight) const {
    return reduce_rows(ops::linear(x, weight));
}

TensorAxis::RowGradient TensorAxis::row_backward(const at::Tensor& dy, const at::Tensor& weight) const {
    at::Tensor dy_all = gather_rows(dy);
    at::Tensor dx = ops::linear_input_gradient(dy_all, weight);
    return {std::move(dx), std::move(dy_all)};
}

}  // namespace argosy::model

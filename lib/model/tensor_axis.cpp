#include "model/tensor_axis.h"

namespace argosy::model {

at::Tensor TensorAxis::column(const at::Tensor& x, const ops::Stack& weight, const ops::Stack& bias) const {
    return ops::linear(gather_rows(x), weight, bias);
}

TensorAxis::ColumnGradient TensorAxis::column_backward(const at::Tensor& x, const at::Tensor& dy,
                                                       const ops::Stack& weight) const {
    return {reduce_rows(ops::linear_input_gradient(dy, weight)), gather_rows(x)};
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

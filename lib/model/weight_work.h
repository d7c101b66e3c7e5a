// The weights' half of a backward pass, stored as data: the tensors from which each parameter's gradient is
// computed. The separation from the input's half lets a pipeline or communication schedule decide when this
// half runs. The weights themselves are not needed. A WeightWork holds its tensors until run().
#pragma once

#include <ATen/core/Tensor.h>

#include <variant>
#include <vector>

#include "model/parameter.h"

namespace argosy::model {

class WeightWork {
  public:
    /// One parameter, or the parameters of a join, whose outputs are adjacent columns of dy.
    using RoleOrJoin = std::variant<Role, Join>;

    void add_product(RoleOrJoin key, at::Tensor dy, at::Tensor x);  // dW += dy^T x
    void add_row_sum(RoleOrJoin key, at::Tensor dy);                // db += sum of the rows of dy
    void add_value(Role role, at::Tensor gradient);                 // dw += gradient
    void add_lookup(Role role, at::Tensor dx, at::Tensor tokens, int64_t begin);  // dW[token - begin] += dx

    /// Computes the gradients in the order of the add calls, adds them to `gradients`, and drops the tensors.
    void run(const Gradients& gradients);

  private:
    enum class Kind { Product, RowSum, Value, Lookup };
    struct Item {
        Kind kind;
        RoleOrJoin key;
        at::Tensor dy;
        at::Tensor other;  // x or tokens
        int64_t begin = 0;
    };
    static void run(const Item& item, const Gradients& gradients, Role role);
    static void run(const Item& item, const Gradients& gradients, Join join);
    static void add(const Item& item, GradientSum& gradient);
    std::vector<Item> items_;
};

}  // namespace argosy::model

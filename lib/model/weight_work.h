// The weights' half of a backward pass, set aside as data: which tensors give which parameter's gradient.
// Splitting it from the input's half lets a pipeline or a communication schedule decide when it runs. It
// needs no weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <variant>
#include <vector>

#include "model/parameter.h"

namespace argosy::model {

class WeightWork {
  public:
    /// One parameter, or those of a join, each by its columns of dy.
    using Of = std::variant<Role, Join>;

    void add_product(Of of, at::Tensor dy, at::Tensor x);  // dW += dy^T x
    void add_row_sum(Of of, at::Tensor dy);                // db += sum of the rows of dy
    void add_value(Role role, at::Tensor gradient);        // dw += gradient
    void add_lookup(Role role, at::Tensor dx, at::Tensor tokens, int64_t begin);  // dW[token - begin] += dx

    /// Adds everything to `gradients` in the order in which it was set aside, and forgets it.
    void run(const Gradients& gradients);

  private:
    enum class Kind { Product, RowSum, Value, Lookup };
    struct Item {
        Kind kind;
        Of of;
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

// The weights' half of a backward pass, which the layers leave behind for later.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/parameter.h"
#include "model/tensor_axis.h"

namespace argosy::model {

/// The weights' half of a backward pass, stored as data: the tensors from which each parameter's gradient is
/// computed. Because the halves are separate, a pipeline or communication schedule can decide when the
/// weights' half runs. This half does not need the weights. A WeightWork holds its tensors until it is
/// destroyed.
class WeightWork {
  public:
    // The outputs of a join are adjacent columns of dy.
    /// dW += dy^T x. Casts that the operands still lack are made when the work runs.
    void add_product(Place place, ops::Operand dy, ops::Operand x, const ops::Recipe& recipe = ops::kNoCasts);
    /// The same, for an x of which this rank has its rows: they are gathered when the work runs. REQUIRES:
    /// axis outlives this object.
    void add_product(Place place, ops::Operand dy, ops::Operand x, const ops::Recipe& recipe,
                     const TensorAxis& axis);
    /// dW[g] += dy^T x over the rows of group g, of experts (ops/grouped.h). W is [groups, out, in] or
    /// [groups * out, in].
    void add_grouped_product(Place place, at::Tensor dy, at::Tensor x, at::Tensor counts);
    void add_row_sum(Place place, at::Tensor dy);      // db += sum of the rows of dy
    void add_value(Place place, at::Tensor gradient);  // dw += gradient
    /// dW[token - begin] += dx, of which this rank has its rows, as in the other add_product().
    void add_lookup(Place place, at::Tensor dx, at::Tensor tokens, int64_t begin, const TensorAxis& axis);

    /// COLLECTIVE over the axes of the products: starts to gather all rows that the work needs.
    void start_gathers();
    /// COLLECTIVE, as start_gathers(), which it calls unless that was done. Computes the gradients and adds
    /// them to `gradients`: first those that need no gathered rows, so that the others' rows travel
    /// meanwhile; both in the order of the add calls. Keeps the tensors.
    void run(const Gradients& gradients);

    /// For sums in bf16: the number of rows of a gradient that run() computes at a time, in an fp32 tensor on
    /// the device of x.
    static int64_t rows_at_once(int64_t num_rows, int64_t row_size, const at::Tensor& x);

  private:
    enum class Kind { Product, GroupedProduct, RowSum, Value, Lookup };
    struct Item {
        Kind kind;
        Place place;
        ops::Operand dy;
        ops::Operand other;      // x or tokens
        at::Tensor counts = {};  // of the rows of a grouped product
        const ops::Recipe* recipe = &ops::kNoCasts;
        int64_t begin = 0;
        const TensorAxis* axis = nullptr;              // rows() are this rank's; null: all
        std::shared_ptr<ComingRows> coming = nullptr;  // all rows()
        /// The rows that a product or a lookup may have to gather.
        ops::Operand& rows() { return kind == Kind::Lookup ? dy : other; }
    };
    static Item cast(const Item& item);
    static void run(const Item& item, const Gradients& gradients);
    static void run_parts(const Item& item, std::span<GradientSum* const> gradients);
    static void add(const Item& item, GradientSum& gradient);
    static void add_rounded(const Item& item, std::span<GradientSum* const> gradients);
    static void add_rounded_groups(const Item& item, GradientSum& gradient);
    static Item rows_of(const Item& item, int64_t first, int64_t count);
    std::vector<Item> items_;
};

}  // namespace argosy::model

#include "model/weight_work.h"

#include <utility>

#include "base/error.h"
#include "ops/embedding.h"
#include "ops/matmul.h"
#include "ops/sums.h"

namespace argosy::model {
namespace {

/// The sum, to add to.
at::Tensor& started(GradientSum& gradient) { return gradient.empty ? gradient.sum.zero_() : gradient.sum; }

}  // namespace

void WeightWork::add_product(Role role, at::Tensor dy, at::Tensor x) {
    items_.push_back({Kind::Product, role, std::move(dy), std::move(x)});
}

void WeightWork::add_row_sum(Role role, at::Tensor dy) {
    items_.push_back({Kind::RowSum, role, std::move(dy), {}});
}

void WeightWork::add_value(Role role, at::Tensor gradient) {
    items_.push_back({Kind::Value, role, std::move(gradient), {}});
}

void WeightWork::add_lookup(Role role, at::Tensor dx, at::Tensor tokens, int64_t begin) {
    items_.push_back({Kind::Lookup, role, std::move(dx), std::move(tokens), begin});
}

void WeightWork::run(const Gradients& gradients) {
    for (const Item& item : std::exchange(items_, {})) {
        GradientSum* gradient = gradients[item.role];
        ARGOSY_CHECK(gradient != nullptr, "role {} has no gradient", static_cast<int>(item.role));
        run(item, *gradient);
        gradient->empty = false;
    }
}

void WeightWork::run(const Item& item, GradientSum& gradient) {
    switch (item.kind) {
        case Kind::Product:
            ops::linear_weight_gradient(gradient.sum, item.dy, item.other, !gradient.empty);
            break;
        case Kind::RowSum:
            ops::add_row_sum(started(gradient), item.dy);
            break;
        case Kind::Value:
            started(gradient).add_(item.dy);
            break;
        case Kind::Lookup:
            ops::add_embedding_gradient(started(gradient), item.dy, item.other, item.begin);
            break;
    }
}

}  // namespace argosy::model

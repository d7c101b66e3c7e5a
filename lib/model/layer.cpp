#include "model/layer.h"

#include <utility>

#include "base/error.h"
#include "ops/embedding.h"
#include "ops/matmul.h"
#include "ops/sums.h"

namespace argosy::model {
namespace {

/// Returns the sum, to which a gradient can then be added. Zeroes the sum first if it is empty.
at::Tensor& started(GradientSum& gradient) { return gradient.empty ? gradient.sum.zero_() : gradient.sum; }

GradientSum& sum_of(const Gradients& gradients, Role role) {
    GradientSum* gradient = gradients[role];
    ARGOSY_CHECK(gradient != nullptr, "role {} has no gradient", static_cast<int>(role));
    return *gradient;
}

}  // namespace

void Tape::drop(RecomputeMode mode) {
    if (mode == RecomputeMode::None) return;
    if (mode == RecomputeMode::Full) {
        *this = Tape{.input = input};
        return;
    }
    attention_norm.y.reset();
    feed_forward_norm.y.reset();
    activation.reset();
    if (q_norm.inverse_rms.defined()) {
        q.reset();
        k.reset();
    }
}

void WeightWork::add_product(RoleOrJoin key, at::Tensor dy, at::Tensor x) {
    items_.push_back({Kind::Product, key, std::move(dy), std::move(x)});
}

void WeightWork::add_row_sum(RoleOrJoin key, at::Tensor dy) {
    items_.push_back({Kind::RowSum, key, std::move(dy), {}});
}

void WeightWork::add_value(Role role, at::Tensor gradient) {
    items_.push_back({Kind::Value, role, std::move(gradient), {}});
}

void WeightWork::add_lookup(Role role, at::Tensor dx, at::Tensor tokens, int64_t begin) {
    items_.push_back({Kind::Lookup, role, std::move(dx), std::move(tokens), begin});
}

void WeightWork::run(const Gradients& gradients) {
    for (const Item& item : std::exchange(items_, {})) {
        std::visit([&](auto key) { run(item, gradients, key); }, item.key);
    }
}

void WeightWork::run(const Item& item, const Gradients& gradients, Role role) {
    GradientSum& gradient = sum_of(gradients, role);
    add(item, gradient);
    gradient.empty = false;
}

void WeightWork::run(const Item& item, const Gradients& gradients, Join join) {
    const auto roles = roles_of(join);
    if (gradients.joined[join].defined()) {
        GradientSum all{gradients.joined[join], sum_of(gradients, roles[0]).empty};
        add(item, all);
        for (const Role role : roles) sum_of(gradients, role).empty = false;
        return;
    }
    for (int64_t begin = 0; const Role role : roles) {
        const int64_t columns = sum_of(gradients, role).sum.size(0);
        run({item.kind, role, item.dy.narrow(1, begin, columns), item.other}, gradients, role);
        begin += columns;
    }
}

void WeightWork::add(const Item& item, GradientSum& gradient) {
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

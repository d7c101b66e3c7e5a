#include "optim/adamw.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <utility>

#include "base/error.h"
#include "ops/own_kernels.h"
#include "ops/types.h"
#include "optim/adamw_update.h"

namespace argosy::optim {
namespace {

void check(const AdamW::Item& item, at::ScalarType moments) {
    const at::ScalarType weights = item.weights.scalar_type();
    const bool wide = weights == at::kDouble;
    ARGOSY_CHECK(wide || weights == at::kFloat || weights == at::kBFloat16, "{} is {}", item.name,
                 toString(weights));
    ARGOSY_CHECK(item.gradient.scalar_type() == (wide ? at::kDouble : at::kFloat), "gradient of {}",
                 item.name);
    ARGOSY_CHECK(wide == (moments == at::kDouble), "{} with moments of {}", item.name, toString(moments));
}

Update make_update(const AdamWOptions& options, double lr, double gradient_factor, int64_t number) {
    const auto power = static_cast<double>(number);
    return {.number = static_cast<uint64_t>(number),
            .gradient_factor = gradient_factor,
            .decay_factor = 1,
            .step_size = lr / (1 - std::pow(options.beta1, power)),
            .root_factor = 1 / std::sqrt(1 - std::pow(options.beta2, power)),
            .beta1 = options.beta1,
            .beta2 = options.beta2,
            .eps = options.eps,
            .seed = options.seed};
}

}  // namespace

AdamW::AdamW(const AdamWOptions& options, std::vector<Item> items)
    : options_(options), items_(std::move(items)) {
    for (const Item& item : items_) {
        const at::ScalarType type =
            options.moments.value_or(ops::accumulation_type(item.weights.scalar_type()));
        check(item, type);
        const auto zeros = [&] { return at::zeros_like(item.weights, type); };
        moments_.push_back({zeros(), zeros()});
    }
}

void AdamW::step(double lr, double factor) {
    Update update = make_update(options_, lr, factor, ++num_updates_);
    std::vector<ItemUpdate> updates;
    for (size_t i = 0; i < items_.size(); ++i) {
        update.decay_factor = items_[i].decay ? 1 - lr * options_.weight_decay : 1;
        updates.push_back({items_[i], moments_[i], update});
    }
    if (!items_.empty() && ops::has_kernels(items_[0].weights)) return own_update(updates);
    for (const ItemUpdate& one : updates) plain_update(one);
}

}  // namespace argosy::optim

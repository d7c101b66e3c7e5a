#include "optim/adamw.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace argosy::optim {

AdamW::AdamW(const AdamWOptions& options, const std::vector<Item>& items)
    : options_(options), num_steps_(at::zeros({}, at::kFloat)) {
    group(true).weight_decay = options.weight_decay;
    for (const Item& item : items) {
        Group& own = group(item.decay);
        own.weights.push_back(item.weights);
        own.gradients.push_back(item.gradient);
        own.first_moments.push_back(at::zeros_like(item.weights));
        own.second_moments.push_back(at::zeros_like(item.weights));
    }
}

void AdamW::step(double lr, const at::Tensor& skip) {
    num_steps_ += 1 - skip;
    for (Group& own : groups_) {
        if (own.weights.empty()) continue;
        const std::vector<at::Tensor> step_of_each(own.weights.size(), num_steps_);
        at::_fused_adamw_(
            own.weights, own.gradients, own.first_moments, own.second_moments, /*max_exp_avg_sqs=*/{},
            step_of_each, lr, options_.beta1, options_.beta2, own.weight_decay, options_.eps,
            /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/std::nullopt, /*found_inf=*/skip);
    }
}

}  // namespace argosy::optim

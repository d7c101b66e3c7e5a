#include "model/balancing.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/special_entr.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "ops/embedding.h"
#include "ops/expert_scores.h"

namespace argosy::model {
namespace {

/// [tokens]: the sequence of each of this rank's tokens.
at::Tensor sequences_of(const RoutedRows& rows, const at::TensorOptions& options) {
    return at::arange(rows.tokens.begin, rows.tokens.begin + rows.tokens.size, options.dtype(at::kLong))
        .div(rows.seq_len, "trunc");
}

/// [sequences, experts]: the slots of this rank's tokens.
at::Tensor counts_of_sequences(const RoutedRows& rows, const at::Tensor& experts, int64_t num_experts) {
    const at::Tensor chosen = experts.narrow(0, 0, rows.tokens.size).to(at::kLong);
    const at::Tensor places =
        (sequences_of(rows, chosen.options()).unsqueeze(1) * num_experts + chosen).flatten();
    return at::zeros({rows.num_sequences * num_experts}, places.options())
        .scatter_add_(0, places, at::ones_like(places))
        .view({rows.num_sequences, num_experts});
}

}  // namespace

at::Tensor Balancing::add(const RoutedRows& rows, const at::Tensor& logits, const ops::Routing& routing,
                          const ops::Router& router) const {
    const int64_t num_experts = router.num_experts;
    const at::Tensor own = logits.narrow(0, 0, rows.tokens.size);
    // 1. the slots of each expert: [sequences, experts], then f of whole sequences
    at::Tensor of_rank = routing.counts, sequence_loads;
    if (sequence_scale != 0 || own.size(0) < logits.size(0)) {  // rows of padding are no tokens
        at::Tensor counts = counts_of_sequences(rows, routing.experts, num_experts);
        of_rank = counts.sum(0);
        if (sequence_scale != 0) {
            if (sum_over_sequences) sum_over_sequences(counts);
            const auto even = static_cast<double>(router.top_k * seq_len) / static_cast<double>(num_experts);
            sequence_loads = (counts.to(at::kDouble) / even).to(logits.scalar_type());
        }
    }
    const at::Tensor of_layer = sums[rows.layer];
    of_layer.narrow(0, 0, num_experts).add_(of_rank.to(at::kDouble));
    // 2. the shares of the scores [tokens, experts], and what follows from them
    const at::Tensor shares = ops::score_shares(own, router);
    const auto add_sum = [&](Sum column, const at::Tensor& terms) {
        of_layer[num_experts + column].add_(terms.to(at::kDouble).sum());
    };
    add_sum(Entropy, at::special_entr(shares));
    if (sequence_scale != 0) {
        const at::Tensor of_tokens = ops::embedding(sequence_loads, sequences_of(rows, own.options()), 0);
        add_sum(SequenceLoss, of_tokens * shares);
    }
    if (step_scale != 0) add_sum(StepLoss, shares * loads[rows.layer]);
    if (z_scale != 0) add_sum(ZLoss, ops::log_sum_exp(own).square());
    return sequence_loads;
}

/// The gradient of the shares of this rank's tokens; undefined without a loss that reads them.
at::Tensor Balancing::dshares(const RoutedRows& rows, const at::Tensor& sequence_loads) const {
    at::Tensor of_step, of_sequences;
    if (step_scale != 0) of_step = loads[rows.layer].unsqueeze(0) * step_scale;
    if (sequence_scale == 0) return of_step.defined() ? of_step.expand({rows.tokens.size, -1}) : of_step;
    of_sequences =
        ops::embedding(sequence_loads, sequences_of(rows, sequence_loads.options()), 0) * sequence_scale;
    return of_step.defined() ? of_sequences + of_step : of_sequences;
}

at::Tensor Balancing::gradient(const RoutedRows& rows, const at::Tensor& logits,
                               const at::Tensor& sequence_loads, const ops::Router& router) const {
    const at::Tensor own = logits.narrow(0, 0, rows.tokens.size);
    const at::Tensor of_tokens = ops::balance_backward(dshares(rows, sequence_loads), z_scale, own, router);
    if (own.size(0) == logits.size(0)) return of_tokens;
    return at::cat({of_tokens, at::zeros({logits.size(0) - own.size(0), logits.size(1)}, own.options())});
}

std::vector<double> ExpertFigures::load_max_over_mean() const {
    std::vector<double> ratios;
    for (const auto& of_layer : counts) {
        const auto total = std::accumulate(of_layer.begin(), of_layer.end(), int64_t{0});
        ratios.push_back(static_cast<double>(std::ranges::max(of_layer)) *
                         static_cast<double>(of_layer.size()) / static_cast<double>(total));
    }
    return ratios;
}

std::vector<int64_t> ExpertFigures::unused() const {
    std::vector<int64_t> numbers;
    for (const auto& of_layer : counts) numbers.push_back(std::ranges::count(of_layer, 0));
    return numbers;
}

}  // namespace argosy::model

// What balances the experts of a model in training, and the figures of its routers.
//
// Of a layer with E experts, of which a token goes to k: f_e is E / k times the share of tokens that go to
// expert e, so that it is 1 for all e if the load is even; P_e is the mean over tokens of e's share in the
// scores. Each loss is a sum over layers, times a coefficient:
//   sequence: the mean over sequences of sum_e f_e P_e, with f and P of the sequence
//   step:     sum_e f_e P_e, with P of all tokens of the step, and f of the last step that was applied
//   z:        the mean over the step's tokens of logsumexp(logits)^2
// f has no gradient. The tokens are those of all microbatches on all ranks, so that neither the mesh nor the
// number of microbatches changes a loss. Beside the losses, a layer may have a bias of each expert in the
// choice (Weights::router_bias), which a rule moves and no gradient (train/expert_balance.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "layout/slab.h"
#include "ops/router.h"
#include "ops/routing.h"

namespace argosy::model {

/// A layer's rows of a microbatch. Rows after `tokens.size` are padding, which does not count.
struct RoutedRows {
    int64_t layer = 0;
    layout::Range tokens;                    // of this rank, among those of the microbatch
    int64_t num_sequences = 0, seq_len = 0;  // as in Batch
};

/// The balancing of one training step, as its layers see it. Its owner makes the tensors.
struct Balancing {
    /// The columns of `sums` after those of the experts: sums over tokens.
    enum Sum { Entropy, SequenceLoss, StepLoss, ZLoss, kNumSums };

    bool forced = false;  // experts take turns (ops::route_in_turn), whatever the scores
    /// A loss is the sum over tokens of a term times this: the coefficient divided by the number of tokens of
    /// the step in the whole job. 0: no such loss.
    double sequence_scale = 0, step_scale = 0, z_scale = 0;
    int64_t seq_len = 0;    // of whole sequences
    at::Tensor loads = {};  // [layers, experts]: f of the step loss
    /// [layers, experts + kNumSums] in fp64, to which forward passes add: how many slots each expert has, and
    /// sums over tokens, whose last bits may depend on the number of threads.
    at::Tensor sums = {};
    /// COLLECTIVE: adds up, in place, over the ranks that have tokens of the same sequences. Null: one rank.
    std::function<void(at::Tensor&)> sum_over_sequences = nullptr;

    /// COLLECTIVE, once for each choice: adds the figures of a layer's rows. Returns f of each sequence,
    /// [sequences, experts], for gradient(); undefined without that loss.
    at::Tensor add(const RoutedRows& rows, const at::Tensor& logits, const ops::Routing& routing,
                   const ops::Router& router) const;
    bool has_gradient() const { return sequence_scale != 0 || step_scale != 0 || z_scale != 0; }
    /// The gradient of the logits, [rows, experts], of all losses.
    at::Tensor gradient(const RoutedRows& rows, const at::Tensor& logits, const at::Tensor& sequence_loads,
                        const ops::Router& router) const;

  private:
    at::Tensor dshares(const RoutedRows& rows, const at::Tensor& sequence_loads) const;
};

/// The routers of a step, over all tokens of the job.
struct ExpertFigures {
    std::vector<int64_t> layers = {};  // those with experts; the other lists have an entry for each
    std::vector<std::vector<int64_t>> counts = {};  // slots of each expert
    std::vector<double> entropy = {};               // mean over tokens of that of the scores' shares, in nats
    std::vector<double> bias_min = {}, bias_max = {};  // after the update; empty: no expert has a bias
    // The losses that are on, with their coefficients.
    std::optional<double> sequence_loss = {}, step_loss = {}, z_loss = {};
    bool forced_balance = false;

    /// The largest count of an expert over the mean; and that of the layer where it is largest.
    std::vector<double> load_max_over_mean() const;
    double worst_load() const { return std::ranges::max(load_max_over_mean()); }
    /// The numbers of experts without tokens.
    std::vector<int64_t> unused() const;
};

}  // namespace argosy::model

// The losses that balance experts, the counts of slots and every gradient of a step, on one rank and on
// meshes, against autograd through the plain model and the losses by their definitions (model/balancing.h).
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/special_entr.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <iterator>
#include <vector>

#include "model/plain_model.h"
#include "model/units.h"
#include "support/autograd.h"
#include "support/tensors.h"
#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

using model::RecomputeMode;
using Score = ops::Router::Score;

constexpr double kTolerance = 1e-9;
constexpr train::BalanceOptions kBalance = {
    .bias_update_rate = 0.01, .sequence_loss = 1, .step_loss = 2, .z_loss = 0.5};

struct Choice {
    const char* name;
    ops::Router router;
    int64_t shared_hidden_dim = 0, period = 1;
};

constexpr Choice kChoices[] = {
    {"1 of 8 in every other layer", {.num_experts = 8, .top_k = 1, .normalize = false}, 0, 2},
    {"2 of 8", {.num_experts = 8, .top_k = 2}},
    {"3 of 2 groups of 4, shared",
     {.num_experts = 8, .top_k = 3, .score = Score::Sigmoid, .scale = 2.5, .num_groups = 4, .top_groups = 2},
     7},
    {"4 of 8, shared", {.num_experts = 8, .top_k = 4, .normalize = false, .scale = 1.5}, 5, 2},
    {"5 of 12 sigmoids", {.num_experts = 12, .top_k = 5, .score = Score::Sigmoid}},
    {"6 of 3 groups of 4", {.num_experts = 12, .top_k = 6, .num_groups = 4, .top_groups = 3}},
    {"7 of 8 sigmoids", {.num_experts = 8, .top_k = 7, .score = Score::Sigmoid, .normalize = false}},
    {"8 of 8", {.num_experts = 8, .top_k = 8}},
};

/// Lengths of samples under which tensor ranks get rows of padding are odd multiples of the context degree.
struct Setting {
    Layout layout;
    int64_t seq_len = 11, microbatch_size = 2;
    RecomputeMode recompute = RecomputeMode::None;
};

std::vector<Setting> settings() {
    constexpr parallel::ContextOptions kInOrder = {.balance = layout::ContextBalance::None};
    switch (world().size()) {
        case 1:
            return {{{"one"}}, {{"full"}, 12, 4, RecomputeMode::Full}};
        case 2:
            return {{{"cp2", {.context = 2, .expert = 2}}, 12},
                    {{"tp2", {.tensor = 2, .expert = 2}}, 11, 1},
                    {{"fsdp2", {.shard = 2, .expert = 2}}, 11, 2, RecomputeMode::Selective}};
        default:
            return {{{.name = "cp2_tp2",
                      .mesh = {.shard = 1, .context = 2, .tensor = 2, .expert = 4},
                      .context = kInOrder},
                     10,
                     1},
                    {{"fsdp2_tp2", {.shard = 2, .tensor = 2, .expert = 4}}, 11, 1, RecomputeMode::Full},
                    {{"hsdp2_cp2", {.replicate = 2, .shard = 1, .context = 2, .expert = 2}}, 12},
                    {{"pp2_tp2", {.pipeline = 2, .shard = 1, .tensor = 2, .expert = 2}, {1, 2}}, 11, 1}};
    }
}

TinyRunOptions options_of(const Choice& choice, const Setting& setting) {
    TinyRunOptions options{.layout = setting.layout,
                           .recompute = setting.recompute,
                           .microbatch_size = setting.microbatch_size,
                           .balance = kBalance,
                           .seq_len = setting.seq_len};
    options.spec = tiny_spec("qwen3");
    options.spec->num_layers = 3;
    options.spec->experts = {.router = choice.router,
                             .hidden_dim = 9,
                             .shared_hidden_dim = choice.shared_hidden_dim,
                             .period = choice.period};
    return options;
}

/// Gives the run routers that prefer some experts, biases and loads, the same on all ranks.
void unbalance(TinyRun& run) {
    for (const auto& parameter : run.trainer().model().parameters()) {
        if (parameter->spec().kind == layout::ParameterKind::Router) parameter->master().mul_(20);
        parameter->refresh_compute();
    }
    RandomTensors random(5);
    at::Tensor& biases = run.trainer().model().router_biases();
    biases.copy_(random.normal(biases.sizes(), biases.scalar_type()) * 0.05);
    const at::Tensor loads = run.trainer().step().expert_loads();
    loads.copy_(random.normal(loads.sizes(), loads.scalar_type()).abs());
}

struct Expected {
    at::Tensor loss;                              // the model's, a mean over the tokens that count
    at::Tensor sequence_loss, step_loss, z_loss;  // with their coefficients
    std::map<int64_t, at::Tensor> counts = {};    // [experts], by layer
    std::map<int64_t, at::Tensor> entropy = {};   // likewise: means over tokens
    NamedTensors gradients = {};
};

/// Adds a layer's losses, counts and entropy.
void add_layer(const ops::Router& router, int64_t layer, const model::PlainChoice& choice,
               const at::Tensor& loads, Expected& all) {
    const double even = static_cast<double>(router.top_k) / static_cast<double>(router.num_experts);
    const at::Tensor shares = choice.scores / choice.scores.sum(-1, /*keepdim=*/true);
    const at::Tensor f = choice.chosen.mean(1) / even, p = shares.mean(1);  // of each sequence
    all.sequence_loss = all.sequence_loss + kBalance.sequence_loss * (f * p).sum(1).mean();
    all.step_loss = all.step_loss + kBalance.step_loss * (loads[layer] * p.mean(0)).sum();
    all.z_loss = all.z_loss + kBalance.z_loss * choice.logits.logsumexp(-1).square().mean();
    all.counts[layer] = choice.chosen.sum(0).sum(0);
    all.entropy[layer] = at::special_entr(shares).sum(-1).mean().detach();
}

/// The step of a run with these weights, all sequences of the job at once. COLLECTIVE over the run's ranks.
Expected expected_of(TinyRun& run, const TinyRunOptions& options) {
    TinyRunOptions alone = options;
    alone.layout = {};
    alone.microbatch_size = options.global_batch;
    const train::StepBatch step = TinyRun(alone, self()).batch(0);
    const model::Batch& batch = step.microbatches[0];
    const auto in_sequences = [&](const at::Tensor& tokens) {
        return tokens.clone().view({batch.num_sequences, batch.seq_len});
    };
    const model::ModelSpec& spec = *options.spec;
    const at::Tensor loads = run.trainer().step().expert_loads();
    const NamedTensors weights = run.weights();
    Expected found;
    std::vector<std::string> names;
    std::vector<at::Tensor> inputs = {in_sequences(batch.tokens)};
    for (const auto& [name, weight] : weights) names.push_back(name), inputs.push_back(weight);
    const Differentiated gradients = differentiate(
        [&](const std::vector<at::Tensor>& in) {
            found.sequence_loss = found.step_loss = found.z_loss = at::zeros({}, at::kDouble);
            NamedTensors named;
            for (size_t i = 0; i < names.size(); ++i) named[names[i]] = in[i + 1];
            for (const auto& [layer, bias] : model::router_biases(spec))
                named[bias.name] = run.trainer().model().router_biases()[layer].to(at::kDouble, false, true);
            model::PlainChoices choices;
            found.loss = model::plain_model(spec, named, in[0], in_sequences(batch.targets), &choices) /
                         static_cast<double>(step.job_counted_tokens);
            for (const auto& [layer, choice] : choices)
                add_layer(spec.experts->router, layer, choice, loads.clone(), found);
            return found.loss + found.sequence_loss + found.step_loss + found.z_loss;
        },
        inputs, at::full({}, 1, at::kDouble));
    for (size_t i = 0; i < names.size(); ++i) found.gradients[names[i]] = gradients.gradients[i + 1];
    return found;
}

void expect_step(TinyRun& run, const Expected& expected) {
    const train::StepTotals totals = run.forward_backward(0);
    const Difference difference = largest_difference(run.gradients(), expected.gradients);
    EXPECT_LE(difference.relative, kTolerance) << difference.name;
    const train::StepResult result = run.update(totals);
    const model::ExpertFigures& figures = result.experts.value();
    const auto expect_near = [](double found, const at::Tensor& value) {
        EXPECT_NEAR(found / value.item<double>(), 1, kTolerance);
    };
    expect_near(result.loss, expected.loss);
    expect_near(figures.sequence_loss.value(), expected.sequence_loss);
    expect_near(figures.step_loss.value(), expected.step_loss);
    expect_near(figures.z_loss.value(), expected.z_loss);
    ASSERT_EQ(figures.layers.size(), expected.counts.size());
    for (size_t i = 0; i < figures.layers.size(); ++i) {
        const at::Tensor& counts = expected.counts.at(figures.layers[i]);
        for (int64_t expert = 0; expert < counts.size(0); ++expert)
            EXPECT_EQ(figures.counts[i][expert], counts[expert].item<double>());
        expect_near(figures.entropy[i], expected.entropy.at(figures.layers[i]));
    }
}

// On meshes, each has every other choice, for time.
TEST(BalanceGradients, AreThoseOfAutograd) {
    const size_t every = world().size() == 1 ? 1 : 2;
    for (size_t first = 0; const Setting& setting : settings()) {
        for (size_t i = first++ % every; i < std::size(kChoices); i += every) {
            SCOPED_TRACE(setting.layout.name + ": " + kChoices[i].name);
            const TinyRunOptions options = options_of(kChoices[i], setting);
            TinyRun run(options, world());
            unbalance(run);
            expect_step(run, expected_of(run, options));
        }
    }
}

}  // namespace
}  // namespace argosy::testing

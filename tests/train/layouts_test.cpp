// Every layout computes what one rank computes: gradients at the first step, then ten or twenty steps.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <tuple>

#include "ops/ops_context.h"
#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

using model::RecomputeMode;
using parallel::Precision;
using parallel::Reshard;

constexpr Precision kDouble{at::kDouble, at::kDouble, at::kDouble};
constexpr Precision kFloat{at::kFloat, at::kFloat, at::kFloat};
constexpr Precision kRounded{at::kFloat, at::kFloat, at::kFloat, /*bf16_gradients=*/true};
constexpr Precision kNarrow{at::kFloat, at::kBFloat16, at::kFloat, /*bf16_gradients=*/true};

/// Whether the layout has another schedule than the usual ones, or another way of context or tensor
/// parallelism.
bool is_variant(const Layout& layout) {
    const bool usual = layout.schedule == "1F1B" || layout.schedule == "GPipe";
    return !usual || layout.tensor != parallel::TensorOptions{} ||
           layout.context != parallel::ContextOptions{};
}

/// The family of the model with documents, a window and a tied table, with which all layouts run.
constexpr const char* kAllLayouts = "olmo3";

std::vector<Layout> layouts(const std::string& family) {
    std::vector<Layout> layouts = every_layout(world().size());
    if (family != kAllLayouts) std::erase_if(layouts, is_variant);
    return layouts;
}

TinyRunOptions one_rank(const std::string& family, const Precision& precision) {
    return {.family = family, .precision = precision, .microbatch_size = TinyRun::kGlobalBatch};
}

/// Steps of the reference, and of layouts in fp32. In fp64 an error shows in the first step that has it,
/// above rounding by many orders of magnitude.
constexpr int kNumSteps = 20;
constexpr int kNumStepsInDouble = 3;  // each batch once, and an update from moments of before
constexpr int kNumBatches = 2;        // few, so that the loss falls

/// Largest distance allowed between a loss with gradients in bf16 and the loss in fp32.
constexpr double kRoundedBand = 0.05;

NamedTensors zeros_of(const std::string& family) {
    NamedTensors tensors;
    for (const auto& unit : model::unit_parameters(tiny_spec(family))) {
        for (const auto& parameter : unit) {
            tensors[parameter.spec.name] = at::zeros(parameter.spec.shape, at::kDouble);
        }
    }
    return tensors;
}

/// The results of one rank that computes the whole batch at once.
struct Reference {
    explicit Reference(const std::string& family) : weights(zeros_of(family)), gradients(zeros_of(family)) {}

    NamedTensors weights, gradients;                            // at the start
    at::Tensor totals = at::zeros({2}, at::kDouble);            // loss and squared norm of the first batch
    at::Tensor steps = at::zeros({kNumSteps, 2}, at::kDouble);  // loss and norm of each
};

void compute(Reference& reference, const std::string& family, const Precision& precision) {
    TinyRun run(one_rank(family, precision), self());
    reference.weights = run.weights();
    const train::StepTotals totals = run.forward_backward(0);
    reference.totals[0].fill_(totals.loss);
    reference.totals[1].fill_(totals.squared_norm);
    reference.gradients = run.gradients();
    for (int step = 0; step < kNumSteps; ++step) {
        const train::StepResult result = run.train(step % kNumBatches);
        reference.steps[step][0].fill_(result.loss);
        reference.steps[step][1].fill_(result.grad_norm);
    }
}

/// COLLECTIVE: rank 0 computes the reference once in a run of the suite and broadcasts it, because there are
/// more ranks than cores.
const Reference& reference(const std::string& family, const Precision& precision) {
    static std::map<std::pair<std::string, at::ScalarType>, Reference> known;
    const auto [entry, is_new] = known.try_emplace({family, precision.master}, family);
    Reference& reference = entry->second;
    if (!is_new) return reference;
    if (world().rank() == 0) compute(reference, family, precision);
    std::vector<comm::Op> broadcasts;
    const auto add = [&](const at::Tensor& tensor) {
        broadcasts.push_back({.kind = comm::OpKind::Broadcast, .out = tensor, .peer = 0});
    };
    for (const auto& [name, tensor] : reference.weights) add(tensor);
    for (const auto& [name, tensor] : reference.gradients) add(tensor);
    add(reference.totals);
    add(reference.steps);
    world().run(broadcasts);
    return reference;
}

struct Computed {
    train::StepTotals totals;
    NamedTensors gradients;
};

Computed compute_gradients(const TinyRunOptions& options) {
    TinyRun run(options, world());
    const train::StepTotals totals = run.forward_backward(0);
    return {totals, run.gradients()};
}

/// COLLECTIVE: compute_gradients(), computed once for all tests with the same options.
const Computed& known_gradients(const TinyRunOptions& options) {
    static std::map<std::tuple<std::string, std::string, at::ScalarType, at::ScalarType, bool, RecomputeMode>,
                    Computed>
        known;
    const auto [entry, is_new] =
        known.try_emplace({options.family, options.layout.name, options.precision.master,
                           options.precision.compute, options.precision.bf16_gradients, options.recompute});
    if (is_new) entry->second = compute_gradients(options);
    return entry->second;
}

/// The modes of recomputation whose gradients are compared with one rank's. In fp32 all of them also have
/// equal bits, for every family.
std::vector<RecomputeMode> modes(const std::string& family, const Precision& precision) {
    if (family != kAllLayouts && precision.master == at::kDouble) return {RecomputeMode::Selective};
    return {RecomputeMode::None, RecomputeMode::Selective, RecomputeMode::Full};
}

class Layouts : public ::testing::TestWithParam<std::string> {};

TEST_P(Layouts, GradientsEqualOneRanks) {
    for (const auto& [precision, tolerance] : {std::pair{kDouble, 1e-12}, std::pair{kFloat, 1e-5}}) {
        const Reference& expected = reference(GetParam(), precision);
        for (const Layout& layout : layouts(GetParam())) {
            for (const RecomputeMode mode : modes(GetParam(), precision)) {
                SCOPED_TRACE(layout.name + ", recompute mode " + std::to_string(static_cast<int>(mode)));
                const auto& [totals, gradients] = known_gradients({GetParam(), layout, precision, mode});
                EXPECT_NEAR(totals.loss, expected.totals[0].item<double>(), tolerance * 10);
                EXPECT_NEAR(totals.squared_norm / expected.totals[1].item<double>(), 1, tolerance * 10);
                const Difference difference = largest_difference(gradients, expected.gradients);
                EXPECT_LE(difference.relative, tolerance) << difference.name;
            }
        }
    }
}

// Each element is rounded once per microbatch, by less than 2^-7 of itself, and once more per sum over ranks.
TEST_P(Layouts, RoundedGradientsAreNearOneRanks) {
    const Reference& expected = reference(GetParam(), kFloat);
    for (const Layout& layout : layouts(GetParam())) {
        SCOPED_TRACE(layout.name);
        const auto& [totals, gradients] =
            known_gradients({GetParam(), layout, kRounded, RecomputeMode::None});
        EXPECT_NEAR(totals.loss, expected.totals[0].item<double>(), 1e-4) << "the first loss";
        EXPECT_NEAR(totals.squared_norm / expected.totals[1].item<double>(), 1, 0.01);
        const Difference difference = largest_difference(gradients, expected.gradients);
        EXPECT_LE(difference.relative, 0.02) << difference.name;
        EXPECT_GT(difference.relative, 1e-4) << "nothing was rounded";
    }
}

/// Trains with gradient accumulation and recompute. In fp32 layouts round differently, and twenty steps of
/// AdamW amplify the difference.
void expect_equal_steps(const std::string& family, const Precision& precision, int num_steps,
                        double tolerance) {
    const at::Tensor& expected = reference(family, precision).steps;
    EXPECT_LT(expected[kNumSteps - 1][0].item<double>(), expected[0][0].item<double>() - 0.1);
    for (const Layout& layout : layouts(family)) {
        SCOPED_TRACE(layout.name);
        TinyRun run({family, layout, precision, RecomputeMode::Selective}, world());
        for (int step = 0; step < num_steps; ++step) {
            const train::StepResult result = run.train(step % kNumBatches);
            const double loss = expected[step][0].item<double>(), norm = expected[step][1].item<double>();
            ASSERT_NEAR(result.loss / loss, 1, tolerance) << "step " << step;
            ASSERT_NEAR(result.grad_norm / norm, 1, 10 * tolerance) << "step " << step;
        }
    }
}

TEST_P(Layouts, ThreeStepsEqualOneRanks) {
    expect_equal_steps(GetParam(), kDouble, kNumStepsInDouble, 1e-10);
}

TEST(LayoutsInSinglePrecision, TwentyStepsEqualOneRanks) {
    expect_equal_steps("llama3", kFloat, kNumSteps, 1e-5);
}

TEST(LayoutsInSinglePrecision, PlainOperationsTakeTheSameSteps) {
    if (world().size() > 2) GTEST_SKIP() << "two ranks show it, and more outnumber the cores";
    reference("llama3", kFloat);  // with own kernels
    const ops::OpsContext context(ops::Path::Plain);
    expect_equal_steps("llama3", kFloat, kNumSteps, 1e-5);
}

/// The losses of one rank in fp32, the same on all ranks.
at::Tensor losses_of_one_rank(int num_steps) {
    const at::Tensor losses = at::zeros({num_steps}, at::kDouble);
    if (world().rank() == 0) {
        TinyRun run(one_rank("llama3", kFloat), self());
        for (int step = 0; step < num_steps; ++step) losses[step].fill_(run.train(step % kNumBatches).loss);
    }
    world().run({.kind = comm::OpKind::Broadcast, .out = losses, .peer = 0});
    return losses;
}

// With gradients in bf16 and a microbatch for each sample, each layout's losses stay in a band around those
// of one rank in fp32.
TEST(LayoutsWithRoundedGradients, LossesStayInTheBandOfOneRanksFp32) {
    constexpr int kManySteps = 60;
    const int num_steps =
        world().size() <= 2 ? kManySteps : 20;  // more ranks outnumber the cores; 20 steps show a wrong sum
    const at::Tensor expected = losses_of_one_rank(kManySteps);
    EXPECT_LT(expected[kManySteps - 1].item<double>(), expected[0].item<double>() / 2);
    for (const Layout& layout : layouts("llama3")) {
        SCOPED_TRACE(layout.name);
        TinyRun run({"llama3", layout, kRounded, RecomputeMode::Selective}, world());
        for (int step = 0; step < num_steps; ++step) {
            const double loss = run.train(step % kNumBatches).loss;
            ASSERT_NEAR(loss, expected[step].item<double>(), kRoundedBand) << "step " << step;
        }
    }
}

/// The share of the matrices' elements that are equal.
double equal_share(const NamedTensors& found, const NamedTensors& expected) {
    double num_equal = 0, num_all = 0;
    for (const auto& [name, tensor] : expected) {
        if (tensor.dim() != 2) continue;
        num_equal += found.at(name).eq(tensor).sum().item<double>();
        num_all += static_cast<double>(tensor.numel());
    }
    return num_equal / num_all;
}

// Layouts that compute the same microbatches and hold whole gradients round with the same random bits. An
// element differs only if its fp32 gradients lie on both sides of a bf16 number's random threshold.
TEST(LayoutsWithRoundedGradients, RoundWholeGradientsAsOneRankDoes) {
    if (world().size() != 2) GTEST_SKIP() << "wants 2 ranks";
    struct Case {
        Layout layout;
        int64_t microbatch_size, microbatch_size_of_one;
    };
    for (const auto& [layout, size, size_of_one] :
         {Case{{"tp2", {.tensor = 2}}, 2, 2}, {{"fsdp2", {.shard = 2}}, 4, 8}}) {
        SCOPED_TRACE(layout.name);
        TinyRun one({.precision = kRounded, .microbatch_size = size_of_one}, self());
        TinyRun two({.layout = layout, .precision = kRounded, .microbatch_size = size}, world());
        one.forward_backward(0);
        two.forward_backward(0);
        EXPECT_GT(equal_share(two.gradients(), one.gradients()), 0.99);
    }
}

/// The gradient norm of each unit. A parameter's name says its unit; a tied table belongs to the embedding.
std::map<std::string, double> unit_norms(const NamedTensors& gradients) {
    std::map<std::string, double> squares;
    for (const auto& [name, gradient] : gradients) {
        std::string unit = name.starts_with("tok_embeddings.") ? "embedding" : "head";
        if (name.starts_with("layers.")) unit = name.substr(0, name.find('.', 7));
        squares[unit] += gradient.square().sum().item<double>();
    }
    for (auto& [unit, square] : squares) square = std::sqrt(square);
    return squares;
}

TEST_P(Layouts, UnitNormsAreThoseOfOneRanksGradients) {
    const auto expected = unit_norms(reference(GetParam(), kDouble).gradients);
    for (const Layout& layout : layouts(GetParam())) {
        SCOPED_TRACE(layout.name);
        TinyRun run({.family = GetParam(), .layout = layout, .unit_grad_norms = true}, world());
        const train::StepResult result = run.train(0);
        EXPECT_EQ(result.unit_grad_norms.size(), expected.size());
        double squares = 0;
        for (const auto& [unit, norm] : result.unit_grad_norms) {
            EXPECT_NEAR(norm / expected.at(unit), 1, 1e-10) << unit;
            squares += norm * norm;
        }
        EXPECT_NEAR(std::sqrt(squares) / result.grad_norm, 1, 1e-12);
    }
}

TEST_P(Layouts, InitialWeightsAreTheSameBits) {
    const NamedTensors& expected = reference(GetParam(), kFloat).weights;
    for (const Layout& layout : layouts(GetParam())) {
        SCOPED_TRACE(layout.name);
        TinyRun run({GetParam(), layout, kFloat}, world());
        for (const auto& [name, tensor] : run.weights()) EXPECT_TRUE(tensor.equal(expected.at(name))) << name;
    }
}

void expect_same_bits(const NamedTensors& found, const NamedTensors& expected) {
    for (const auto& [name, tensor] : found) EXPECT_TRUE(tensor.equal(expected.at(name))) << name;
}

/// Recomputed activations and repeated runs give the same bits.
TEST_P(Layouts, RepeatsBitForBit) {
    for (const Precision& precision : {kFloat, kNarrow}) {
        for (const Layout& layout : layouts(GetParam())) {
            SCOPED_TRACE(layout.name);
            const TinyRunOptions options{GetParam(), layout, precision, RecomputeMode::None};
            const NamedTensors& expected = known_gradients(options).gradients;
            expect_same_bits(compute_gradients(options).gradients, expected);
            for (const RecomputeMode mode : {RecomputeMode::Selective, RecomputeMode::Full}) {
                expect_same_bits(known_gradients({GetParam(), layout, precision, mode}).gradients, expected);
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Families, Layouts, ::testing::Values("llama3", "qwen2", "gemma3", "olmo3"),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace argosy::testing

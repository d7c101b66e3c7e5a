// Every layout computes what one rank computes: gradients at the first step, then twenty steps.
#include <gtest/gtest.h>

#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

using model::Keep;
using parallel::Precision;
using parallel::Reshard;

constexpr Precision kDouble{at::kDouble, at::kDouble, at::kDouble};
constexpr Precision kFloat{at::kFloat, at::kFloat, at::kFloat};
constexpr Precision kMixed{at::kFloat, at::kBFloat16, at::kFloat};

/// The layouts that this suite's number of ranks can take.
std::vector<Layout> layouts() {
    switch (world().size()) {
        case 1:
            return {{"one"}};
        case 2:
            return {{"ddp2", {.replicate = 2}},
                    {"fsdp2", {.shard = 2}},
                    {"fsdp2_never", {.shard = 2}, {}, "1F1B", Reshard::Never},
                    {"tp2", {.tensor = 2}},
                    {"pp2", {.pipeline = 2}, {3, 2}},
                    {"pp2_gpipe", {.pipeline = 2}, {1, 4}, "GPipe"}};
        case 4:
            return {{"fsdp4", {.shard = 4}},
                    {"hsdp2x2", {.replicate = 2, .shard = 2}},
                    {"ddp2_tp2", {.replicate = 2, .tensor = 2}},
                    {"tp2_pp2", {.pipeline = 2, .tensor = 2}, {2, 3}},
                    {"tp4_kv_replicas", {.tensor = 4}},
                    {"pp4", {.pipeline = 4}, {1, 2, 2, 0}},
                    {"fsdp2_pp2", {.pipeline = 2, .shard = 2}, {3, 2}, "1F1B", Reshard::Never}};
        default:
            return {
                {"fsdp2_tp2_pp2", {.pipeline = 2, .shard = 2, .tensor = 2}, {3, 2}, "1F1B", Reshard::Never},
                {"fsdp2_tp2_pp2_reshard", {.pipeline = 2, .shard = 2, .tensor = 2}, {2, 3}},
                {"hsdp2x2_tp2", {.replicate = 2, .shard = 2, .tensor = 2}},
                {"fsdp8", {.shard = 8}}};
    }
}

TinyRunOptions one_rank(const std::string& family, const Precision& precision) {
    return {.family = family, .precision = precision, .microbatch_size = TinyRun::kGlobalBatch};
}

class Layouts : public ::testing::TestWithParam<std::string> {};

TEST_P(Layouts, GradientsEqualOneRanks) {
    for (const auto& [precision, tolerance] : {std::pair{kDouble, 1e-10}, std::pair{kFloat, 1e-5}}) {
        TinyRun reference(one_rank(GetParam(), precision), self());
        const at::Tensor expected_totals = reference.forward_backward(0);
        const NamedTensors expected = reference.gradients();
        for (const Layout& layout : layouts()) {
            for (const Keep keep : {Keep::Everything, Keep::Products, Keep::Input}) {
                SCOPED_TRACE(layout.name + ", keep " + std::to_string(static_cast<int>(keep)));
                TinyRun run({GetParam(), layout, precision, keep}, world());
                const at::Tensor totals = run.forward_backward(0);
                EXPECT_NEAR(totals[0].item<double>(), expected_totals[0].item<double>(), tolerance * 10);
                EXPECT_NEAR(totals[1].item<double>() / expected_totals[1].item<double>(), 1, tolerance * 10);
                const Difference difference = largest_difference(run.gradients(), expected);
                EXPECT_LE(difference.relative, tolerance) << difference.name;
            }
        }
    }
}

/// With accumulation and recompute. In fp32 a layout rounds differently, which twenty steps of AdamW amplify.
void expect_twenty_equal_steps(const std::string& family, const Precision& precision, double tolerance) {
    constexpr int kSteps = 20, kBatches = 2;  // few batches, so that the loss falls
    TinyRun reference(one_rank(family, precision), self());
    std::vector<train::StepResult> expected;
    for (int step = 0; step < kSteps; ++step) expected.push_back(reference.train(step % kBatches));
    EXPECT_LT(expected.back().loss, expected.front().loss - 0.1);
    for (const Layout& layout : layouts()) {
        SCOPED_TRACE(layout.name);
        TinyRun run({family, layout, precision, Keep::Products}, world());
        for (int step = 0; step < kSteps; ++step) {
            const train::StepResult result = run.train(step % kBatches);
            ASSERT_NEAR(result.loss / expected[step].loss, 1, tolerance) << "step " << step;
            ASSERT_NEAR(result.grad_norm / expected[step].grad_norm, 1, 10 * tolerance) << "step " << step;
        }
    }
}

TEST_P(Layouts, TwentyStepsEqualOneRanks) { expect_twenty_equal_steps(GetParam(), kDouble, 1e-10); }

TEST(LayoutsInSinglePrecision, TwentyStepsEqualOneRanks) {
    expect_twenty_equal_steps("llama3", kFloat, 1e-5);
}

TEST_P(Layouts, InitialWeightsAreTheSameBits) {
    TinyRun reference(one_rank(GetParam(), kFloat), self());
    const NamedTensors expected = reference.weights();
    for (const Layout& layout : layouts()) {
        SCOPED_TRACE(layout.name);
        TinyRun run({GetParam(), layout, kFloat}, world());
        for (const auto& [name, tensor] : run.weights()) EXPECT_TRUE(tensor.equal(expected.at(name))) << name;
    }
}

/// Recomputed activations and repeated runs give the same bits.
TEST_P(Layouts, RepeatsBitForBit) {
    for (const Precision& precision : {kFloat, kMixed}) {
        for (const Layout& layout : layouts()) {
            SCOPED_TRACE(layout.name);
            TinyRun first({GetParam(), layout, precision, Keep::Everything}, world());
            first.forward_backward(0);
            const NamedTensors expected = first.gradients();
            for (const Keep keep : {Keep::Everything, Keep::Products, Keep::Input}) {
                TinyRun again({GetParam(), layout, precision, keep}, world());
                again.forward_backward(0);
                for (const auto& [name, tensor] : again.gradients())
                    EXPECT_TRUE(tensor.equal(expected.at(name))) << name;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Families, Layouts, ::testing::Values("llama3", "qwen2", "qwen3"),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace argosy::testing

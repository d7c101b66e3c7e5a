// The comparison of layouts notices the mistakes that trainers really made: each is planted, and must show.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/faults.h"
#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

constexpr double kTolerance = 1e-10;

/// The first thing in which two ranks differ from one after a forward and a backward pass; empty when nothing
/// does.
std::string disagreement(const std::string& family, const Layout& layout) {
    TinyRun one({.family = family, .microbatch_size = TinyRun::kGlobalBatch}, self());
    TinyRun two({.family = family, .layout = layout}, world());
    const train::StepTotals expected = one.forward_backward(0), found = two.forward_backward(0);
    const double loss = std::abs(found.loss / expected.loss - 1);
    const double norm = std::abs(found.squared_norm / expected.squared_norm - 1);
    if (!(loss <= kTolerance)) return fmt::format("loss off by {}", loss);
    const Difference gradient = largest_difference(two.gradients(), one.gradients());
    if (!(gradient.relative <= kTolerance))
        return fmt::format("{} off by {}", gradient.name, gradient.relative);
    if (!(norm <= kTolerance)) return fmt::format("squared norm off by {}", norm);
    return "";
}

std::string first_disagreement() {
    for (const char* family : {"llama3", "qwen2"}) {
        for (const Layout& layout : {Layout{"ddp", {.replicate = 2}}, Layout{"fsdp", {.shard = 2}},
                                     Layout{"tp", {.tensor = 2}}, Layout{"pp", {.pipeline = 2}, {3, 2}}}) {
            const std::string found = disagreement(family, layout);
            if (!found.empty()) return fmt::format("{} {}: {}", family, layout.name, found);
        }
    }
    return "";
}

void expect_to_show(Fault fault, const std::string& as) {
    const PlantedFault planted(fault);
    const std::string found = first_disagreement();
    EXPECT_NE(found.find(as), std::string::npos) << found << " instead of " << as;
}

TEST(PlantedFaults, NoneShowsNothing) { EXPECT_EQ(first_disagreement(), ""); }

TEST(PlantedFaults, AnOmittedTensorSumShows) {
    expect_to_show(Fault::OmitTensorSum, "llama3 tp: layers.4.ffn_norm");
}

TEST(PlantedFaults, AnOmittedReplicaSumShows) {
    expect_to_show(Fault::OmitReplicaSum, "llama3 ddp: layers.");
}

TEST(PlantedFaults, TokensWeightedPerRankShow) {
    expect_to_show(Fault::WeightTokensPerRank, "llama3 ddp: loss off");
}

TEST(PlantedFaults, ADoubledNormShows) { expect_to_show(Fault::DoubleNorm, "llama3 ddp: squared norm off"); }

TEST(PlantedFaults, ASkippedTiedGradientShows) {
    expect_to_show(Fault::SkipTiedGradient, "qwen2 pp: tok_embeddings.weight off");
}

}  // namespace
}  // namespace argosy::testing

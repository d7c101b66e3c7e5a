// The comparison of layouts detects the mistakes that trainers really made. Each mistake is made from outside
// of the trainer: a CommunicatorDouble drops or changes what a rank sends, or the batch has wrong counts.
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <span>
#include <string>

#include "support/communicator_double.h"
#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

using comm::Op;
using comm::OpKind;
using Ops = std::span<const Op>;

constexpr double kTolerance = 1e-10;

/// A mistake in a run of two ranks. Each function may be empty: that part of the run is right then.
struct Fault {
    CommunicatorDouble::Submit submit = [](comm::Communicator& group, Ops ops) { return group.submit(ops); };
    std::function<void(train::StepBatch& batch, TinyRun& run)> change_batch = {};
    /// The squared norm that this rank adds to the job's.
    std::function<at::Tensor(TinyRun& run)> squared_norm = {};
};

/// Forward and backward of the first step under the fault.
train::StepTotals faulty_totals(TinyRun& run, const Fault& fault) {
    train::StepBatch batch = run.batch(0);
    if (fault.change_batch) fault.change_batch(batch, run);
    return run.trainer().step().forward_backward(batch);
}

/// The first result in which two ranks under the fault differ from one after a forward and a backward pass;
/// empty if there is no difference.
std::string disagreement(const std::string& family, const Layout& layout, const Fault& fault) {
    TinyRun one({.family = family, .microbatch_size = TinyRun::kGlobalBatch}, self());
    TinyRun* running = nullptr;
    CommunicatorDouble ranks(world(), [&](comm::Communicator& group, Ops ops) {
        // The step's totals: [loss, squared norm].
        const bool is_totals = group.name() == world().name() && ops.size() == 1 && ops[0].in.numel() == 2;
        if (is_totals && fault.squared_norm) ops[0].in[1].copy_(fault.squared_norm(*running));
        return fault.submit(group, ops);
    });
    TinyRun two({.family = family, .layout = layout}, ranks);
    running = &two;
    const train::StepTotals expected = one.forward_backward(0), found = faulty_totals(two, fault);
    const double loss = std::abs(found.loss / expected.loss - 1);
    const double norm = std::abs(found.squared_norm / expected.squared_norm - 1);
    if (!(loss <= kTolerance)) return fmt::format("loss off by {}", loss);
    const Difference gradient = largest_difference(two.gradients(), one.gradients());
    if (!(gradient.relative <= kTolerance))
        return fmt::format("{} off by {}", gradient.name, gradient.relative);
    if (!(norm <= kTolerance)) return fmt::format("squared norm off by {}", norm);
    return "";
}

std::string first_disagreement(const Fault& fault) {
    for (const char* family : {"llama3", "qwen2"}) {
        for (const Layout& layout : {Layout{"ddp", {.replicate = 2}}, Layout{"fsdp", {.shard = 2}},
                                     Layout{"tp", {.tensor = 2}}, Layout{"pp", {.pipeline = 2}, {3, 2}}}) {
            const std::string found = disagreement(family, layout, fault);
            if (!found.empty()) return fmt::format("{} {}: {}", family, layout.name, found);
        }
    }
    return "";
}

void expect_to_show(const Fault& fault, const std::string& as) {
    const std::string found = first_disagreement(fault);
    EXPECT_NE(found.find(as), std::string::npos) << found << " instead of " << as;
}

TEST(PlantedFaults, NoneShowsNothing) { EXPECT_EQ(first_disagreement({}), ""); }

// The sums of the norms' gradients are the one launch of several all-reduces over the tensor axis; the loss's
// sums over the vocabulary come one by one.
TEST(PlantedFaults, AnOmittedTensorSumShows) {
    const auto submit = [](comm::Communicator& group, Ops ops) {
        const bool norms = group.name() == "tp" && ops.size() > 1 && ops[0].kind == OpKind::AllReduce;
        return norms ? comm::Pending() : group.submit(ops);
    };
    expect_to_show({.submit = submit}, "llama3 tp: layers.4.feed_forward.w2.bias");
}

TEST(PlantedFaults, AnOmittedReplicaSumShows) {
    const auto submit = [](comm::Communicator& group, Ops ops) {
        return group.name() == "dp_replicate" ? comm::Pending() : group.submit(ops);
    };
    expect_to_show({.submit = submit}, "llama3 ddp: layers.");
}

// The loss as the mean of the ranks' means.
TEST(PlantedFaults, TokensWeightedPerRankShow) {
    const auto change_batch = [](train::StepBatch& batch, TinyRun& run) {
        batch.job_counted_tokens = batch.counted_tokens * run.mesh().degree(layout::kDataAxes);
    };
    expect_to_show({.change_batch = change_batch}, "llama3 ddp: loss off");
}

TEST(PlantedFaults, CopiesThatCountTwiceInTheNormShow) {
    const auto squared_norm = [](TinyRun& run) {
        at::Tensor sum;
        for (const auto& parameter : run.trainer().model().parameters()) {
            const at::Tensor square = parameter->gradient().sum.square().sum();
            sum = sum.defined() ? sum.add_(square) : square;
        }
        return sum;
    };
    expect_to_show({.squared_norm = squared_norm}, "llama3 ddp: squared norm off");
}

// The two stages send each other a tied table's gradients in one launch of a send and a receive.
TEST(PlantedFaults, ASkippedTiedGradientShows) {
    const auto submit = [](comm::Communicator& group, Ops ops) {
        if (group.name() != "pp" || ops.size() != 2) return group.submit(ops);
        group.run(ops);
        ops[1].out.zero_();
        return comm::Pending();
    };
    expect_to_show({.submit = submit}, "qwen2 pp: tok_embeddings.weight off");
}

}  // namespace
}  // namespace argosy::testing

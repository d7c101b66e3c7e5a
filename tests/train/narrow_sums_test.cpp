// Sums in bf16: no layout computes worse than one rank does. Fp64 cannot see the order of a sum, because its
// rounding is far below every tolerance; nor can the bits of one run in bf16, because layouts round
// differently. A mean over seeds can: each layout's squared error, against fp64 with the same weights, is
// compared with one rank's and with plain tensor parallelism's (lib/NUMERICS.md).
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

constexpr parallel::Precision kDouble{at::kDouble, at::kDouble, at::kDouble};
constexpr parallel::Precision kMixed{at::kFloat, at::kBFloat16, at::kFloat};

std::vector<Layout> layouts() {
    constexpr parallel::TensorOptions kOverlap{.overlap_products = true},
        kGatherLogits{.gather_logits = true};
    constexpr parallel::ContextOptions kRing{.rotation = parallel::ContextOptions::Rotation::Ring};
    if (world().size() == 2) {
        return {{"fsdp2", {.shard = 2}},
                {"tp2", {.tensor = 2}},
                {.name = "tp2_async", .mesh = {.tensor = 2}, .tensor = kOverlap},
                {.name = "tp2_all_logits", .mesh = {.tensor = 2}, .tensor = kGatherLogits},
                {"cp2", {.context = 2}},
                {.name = "cp2_ring", .mesh = {.context = 2}, .context = kRing},
                {"pp2", {.pipeline = 2}, {4, 4}}};
    }
    return {{"tp4", {.tensor = 4}},
            {.name = "tp4_async", .mesh = {.tensor = 4}, .tensor = kOverlap},
            {"cp4", {.context = 4}},
            {.name = "cp4_ring", .mesh = {.context = 4}, .context = kRing},
            {"hsdp", {.replicate = 2, .shard = 2}}};
}

TinyRunOptions options_of(const Layout& layout, const parallel::Precision& precision, uint64_t seed) {
    TinyRunOptions options{.layout = layout, .precision = precision, .microbatch_size = 2, .seed = seed};
    options.spec = model::ModelSpec{.name = "llama3",
                                    .vocab_size = 64,
                                    .dim = 64,
                                    .num_layers = 8,
                                    .num_heads = 4,
                                    .num_kv_heads = 4,
                                    .head_dim = 16,
                                    .hidden_dim = 128};
    options.spec->output_bias = options.spec->mlp_bias = true;
    options.seq_len = 32;
    return options;
}

/// The gradients of the seed's batch, with weights that bf16 can represent. The outputs of half a block and
/// their biases are smaller than the residual stream, but not so small that rounding loses them.
NamedTensors gradients(const TinyRunOptions& options, comm::Communicator& ranks) {
    TinyRun run(options, ranks);
    for (const auto& parameter : run.trainer().model().parameters()) {
        const std::string& name = parameter->spec().name;
        at::Tensor master = parameter->master();
        if (name.ends_with(".bias")) master.fill_(0.25);
        if (name.ends_with("wo.weight") || name.ends_with("w2.weight")) master.mul_(32);
        master.copy_(master.to(at::kBFloat16));
        parameter->refresh_compute();
    }
    run.forward_backward(static_cast<int64_t>(options.seed));
    return run.gradients();
}

/// The mean over the parameters of their gradients' squared errors, each relative to the gradient.
double squared_error(const NamedTensors& found, const NamedTensors& exact) {
    double sum = 0;
    for (const auto& [name, tensor] : exact)
        sum += ((found.at(name) - tensor).pow(2).sum() / tensor.pow(2).sum()).item<double>();
    return sum / static_cast<double>(exact.size());
}

// Sums of the residual and a rank's part, to which the other ranks' parts were added, had 1.37 to 1.39 times
// one rank's error. The errors of these seeds are within 5 % of one rank's now. The errors of the loss are
// too few numbers to compare.
TEST(NarrowSums, NoLayoutHasALargerErrorThanOneRank) {
    constexpr int kNumSeeds = 3;
    constexpr double kMostOfOneRank = 1.15, kMostOfPlain = 1.1;
    const std::vector<Layout> tested = layouts();
    double one_rank = 0;
    std::map<std::string, double> errors;
    for (int seed = 1; seed <= kNumSeeds; ++seed) {
        const NamedTensors exact = gradients(options_of({"one"}, kDouble, seed), self());
        one_rank += squared_error(gradients(options_of({"one"}, kMixed, seed), self()), exact);
        for (const Layout& layout : tested)
            errors[layout.name] += squared_error(gradients(options_of(layout, kMixed, seed), world()), exact);
    }
    EXPECT_GT(one_rank / kNumSeeds, 1e-6) << "nothing is rounded";
    for (const auto& [name, error] : errors) EXPECT_LT(error / one_rank, kMostOfOneRank) << name;
    const std::string plain = "tp" + std::to_string(world().size());
    EXPECT_LT(errors.at(plain + "_async") / errors.at(plain), kMostOfPlain);
}

}  // namespace
}  // namespace argosy::testing

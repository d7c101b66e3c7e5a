#include "model/flops.h"

#include <gtest/gtest.h>

namespace argosy::model {
namespace {

TEST(FlopsPerToken, Llama3Of8BillionAt8192) {
    // Parameters of a block: wq and wo 4096 x 4096, wk and wv 1024 x 4096, three of 14336 x 4096, two norms.
    // Head: norm and 128256 x 4096.
    const double block = 2 * 4096. * 4096 + 2 * 1024. * 4096 + 3 * 14336. * 4096 + 2 * 4096;
    const double weights = 32 * block + 4096 + 128256. * 4096;
    EXPECT_EQ(weights, 7504924672);
    const double layers_width_length = 32. * 4096 * 8192;
    const FlopsPerToken flops = flops_per_token(preset("llama3", "8B"), 8192);
    EXPECT_EQ(flops.causal, 6 * weights + 6 * layers_width_length);
    EXPECT_EQ(flops.noncausal, 6 * weights + 12 * layers_width_length);
    EXPECT_EQ(flops.causal, 51471998976);
}

TEST(FlopsPerToken, CountsATiedTableOnceAsTheHead) {
    ModelSpec spec = preset("llama3", "debugmodel");
    const FlopsPerToken separate = flops_per_token(spec, 64);
    spec.tied_embeddings = true;
    const FlopsPerToken tied = flops_per_token(spec, 64);
    EXPECT_EQ(tied.causal, separate.causal);
    EXPECT_EQ(tied.noncausal, separate.noncausal);
}

TEST(FlopsPerToken, UsesTheHeadsWidthNotTheModels) {
    // Qwen 3 0.6B has 16 heads of 128 in a model 1024 wide.
    const FlopsPerToken flops = flops_per_token(preset("qwen3", "0.6B"), 1000);
    EXPECT_EQ(flops.noncausal - flops.causal, 6 * 28. * (16 * 128) * 1000);
}

// Each token attends to its window, the first ones to less.
TEST(FlopsPerToken, CountsTheKeysOfAWindow) {
    ModelSpec spec = preset("llama3", "8B");
    const double all = flops_per_token(spec, 8192).noncausal, layers_width = 12. * 32 * 4096;
    spec.sliding_window = 1024;
    const FlopsPerToken flops = flops_per_token(spec, 8192);
    EXPECT_EQ(all - flops.noncausal, layers_width * (8192 - 1024));
    const double mean_keys = (8192. - 1024) / 8192 * 1024 + 1024. / 8192 * 1024 / 2;
    EXPECT_EQ(flops.noncausal - flops.causal, layers_width * (1024 - mean_keys));
    spec.sliding_window = 100000;
    EXPECT_EQ(flops_per_token(spec, 8192).causal, 51471998976);
    spec.sliding_window = 1024, spec.full_layer_period = 4;  // 8 of 32 layers
    EXPECT_EQ(all - flops_per_token(spec, 8192).noncausal, layers_width * 0.75 * (8192 - 1024));
}

}  // namespace
}  // namespace argosy::model

// A model and its step use the mesh's device and no other. LibTorch's device without memory (meta) stands for
// another device: products, and LibTorch's operations, fail if they mix it with the processor's tensors, and
// the processor's memory is measured.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "comm/mesh.h"
#include "comm/recording.h"
#include "observe/memory.h"
#include "ops/ops_context.h"
#include "parallel/executor.h"
#include "parallel/parallel_model.h"
#include "parallel/placement.h"

namespace argosy::parallel {
namespace {

class MetaDeviceTest : public ::testing::TestWithParam<const char*> {
  protected:
    static constexpr int64_t kSeqLen = 16, kSequences = 2, kMicrobatches = 3;

    static model::ModelSpec spec() {
        const std::string family = GetParam();
        return {.name = family,
                .vocab_size = 40,
                .dim = 24,
                .num_layers = 2,
                .num_heads = 4,
                .num_kv_heads = 2,
                .head_dim = 6,
                .hidden_dim = 20,
                .tied_embeddings = family == "qwen2",
                .qkv_bias = family != "qwen3",
                .output_bias = family == "llama3",
                .mlp_bias = family == "llama3",
                .qk_norm = family == "qwen3" ? model::QkNorm::Heads : model::QkNorm::None};
    }

    static Program program(const LoweringOptions& options) {
        const ScheduleShape shape{.num_stages = 1, .num_ranks = 1, .num_microbatches = kMicrobatches};
        return lower(schedule("1F1B", shape)[0], options);
    }

    static model::Batch batch() {
        const auto tokens = at::zeros({kSequences * kSeqLen}, at::TensorOptions(c10::kMeta).dtype(at::kLong));
        return {tokens, tokens, kSequences, kSeqLen};
    }
};

TEST_P(MetaDeviceTest, AStepTouchesNoOtherDevice) {
    static observe::MemoryMeter meter = observe::MemoryMeter::install();
    const ops::OpsContext tensors;
    comm::Recording recording;
    comm::RecordingCommunicator world(/*rank=*/0, /*size=*/1, recording);
    comm::Mesh mesh({}, world);
    const ModelPlacement placement = place_parameters(spec(), mesh.shape(), {2});
    for (const Precision& precision : {Precision{at::kFloat, at::kFloat, at::kFloat},
                                       {at::kFloat, at::kBFloat16, at::kFloat},
                                       {at::kFloat, at::kBFloat16, at::kFloat, /*bf16_gradients=*/true}}) {
        meter.reset_peak();
        const int64_t before = meter.current_bytes();
        ParallelModel model(spec(), placement, mesh, {.precision = precision, .seq_len = kSeqLen, .seed = 1});
        const LoweringOptions options{.stages = stage_units(placement),
                                      .recompute = model::RecomputeMode::Selective};
        Executor executor(model, mesh, program(options), {});
        const std::vector<model::Batch> batches(kMicrobatches, batch());

        reset_gradients(model);
        const at::Tensor loss = executor.run(batches, /*loss_weight=*/0.5, /*update=*/0);
        const at::Tensor squares = owned_squared_norms(model);
        EXPECT_LT(meter.peak_bytes() - before, 1024) << "more in the processor's memory than some numbers";

        EXPECT_TRUE(loss.is_meta() && squares.is_meta());
        for (const auto& parameter : model.parameters()) {
            EXPECT_TRUE(parameter->master().is_meta() && parameter->compute().is_meta());
            EXPECT_TRUE(parameter->gradient().sum.is_meta());
            EXPECT_EQ(parameter->gradient().sum.scalar_type(), precision.gradient());
            EXPECT_FALSE(parameter->gradient().empty) << parameter->spec().name;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Families, MetaDeviceTest, ::testing::Values("llama3", "qwen2", "qwen3"),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace argosy::parallel

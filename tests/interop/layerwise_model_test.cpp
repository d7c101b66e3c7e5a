// A model that is read unit by unit: its results against transformers', and the amount of it in memory at a
// time.
#include "interop/layerwise_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "expect_error.h"
#include "interop/convert.h"
#include "interop/memory_source.h"
#include "model/plain_model.h"
#include "model/units.h"
#include "observe/memory.h"
#include "ops/cross_entropy.h"
#include "ops/ops_context.h"
#include "support/reference.h"
#include "support/tensors.h"

namespace argosy::interop {
namespace {

using testing::close;
using testing::identical;
using testing::MemorySource;
using testing::Reference;

Streams after_blocks(const LayerwiseModel& model, std::span<const model::Batch> batches) {
    Streams streams;
    for (int64_t unit = 0; unit + 1 < model.num_units(); ++unit) model.run_unit(unit, batches, streams);
    return streams;
}

class AgainstTransformers : public ::testing::TestWithParam<std::string> {
  protected:
    model::Batch first_batch() const {
        const at::Tensor tokens = reference_.read("tokens")[0], targets = reference_.read("targets")[0];
        return {tokens.flatten(), targets.flatten(), tokens.size(0), tokens.size(1)};
    }
    at::Tensor logits() const { return reference_.read("logits").flatten(0, 1); }

    const Reference reference_{GetParam()};
    const MemorySource source_{reference_.spec(), reference_.seed()};
    const ops::OpsContext context_;
};

TEST_P(AgainstTransformers, Logits) {
    const model::Batch batch = first_batch();
    const LayerwiseModel single(source_, reference_.spec(), at::kFloat);
    EXPECT_TRUE(close(single.logits(after_blocks(single, {&batch, 1})[0]), logits(), 2e-6));
    const LayerwiseModel wide(source_, reference_.spec(), at::kDouble);
    EXPECT_TRUE(close(wide.logits(after_blocks(wide, {&batch, 1})[0]), logits(), 1e-6));
}

// The longest sequence of all work chooses the factors, and not the size of the batch in which a sequence
// happens to be. The short factors here change nothing.
TEST(Longrope, IsTheSameInEveryBatch) {
    const ops::OpsContext context;
    model::ModelSpec plain = Reference("phi3").spec();
    plain.rope_scaling.reset();
    model::ModelSpec scaled = plain;
    scaled.rope_scaling = {.type = model::RopeScaling::Type::Longrope, .original_context = 10};
    scaled.rope_scaling->short_factors = std::vector<double>(model::rotary_dim(plain) / 2, 1);
    scaled.rope_scaling->long_factors = std::vector<double>(model::rotary_dim(plain) / 2, 2);
    const MemorySource source(plain, /*seed=*/1);
    const auto streams = [&](const model::ModelSpec& spec, int64_t longest) {
        // Three sequences of 8 tokens as one row, as scores are computed on a processor.
        const at::Tensor tokens = at::arange(24).remainder(plain.vocab_size);
        const model::Batch packed{.tokens = tokens,
                                  .targets = tokens,
                                  .num_sequences = 1,
                                  .seq_len = 24,
                                  .positions = at::arange(24).remainder(8)};
        return after_blocks(LayerwiseModel(source, spec, at::kDouble, longest), {&packed, 1})[0];
    };
    EXPECT_TRUE(identical(streams(scaled, 10), streams(plain, 10)));
    EXPECT_FALSE(identical(streams(scaled, 11), streams(plain, 11)));
}

// A bias is of the choice: one that all experts of a layer have in common changes nothing.
TEST(RouterBias, IsReadWithItsLayerIfItIsThere) {
    const ops::OpsContext context;
    const model::ModelSpec spec = Reference("mixtral").spec();
    MemorySource source(spec, /*seed=*/1);
    const auto streams = [&] {
        const at::Tensor tokens = at::arange(24).remainder(spec.vocab_size);
        const model::Batch batch{.tokens = tokens, .targets = tokens, .num_sequences = 2, .seq_len = 12};
        return after_blocks(LayerwiseModel(source, spec, at::kFloat), {&batch, 1})[0];
    };
    const at::Tensor without = streams(), bias = at::ones({spec.experts->router.num_experts}, at::kFloat);
    source.set("model/layers.0.moe.router.bias", bias);
    EXPECT_TRUE(identical(streams(), without));
    bias[0] += 5;
    EXPECT_FALSE(identical(streams(), without));
    source.set("model/layers.0.moe.router.bias", at::ones({3}));
    EXPECT_ERROR(streams(), UserError, "layers.0.moe.router.bias has shape [3]");
}

TEST(RouterBias, HasNoPlaceInHuggingFacesMixtral) {
    const std::string name = "model/layers.0.moe.router.bias";
    const model::ModelSpec spec = Reference("mixtral").spec();
    const at::Tensor bias = at::zeros({spec.experts->router.num_experts}, at::kFloat);
    auto tensors = std::make_unique<MemorySource>(spec, /*seed=*/1);
    tensors->set(name, bias);
    ModelSource source;
    source.spec = spec;
    source.tensors = std::move(tensors);
    const auto type_of_bias = [&](const ConvertOptions& options) -> std::optional<ElementType> {
        for (const TensorConversion& each : plan(source, options))
            if (each.to.name == name) return each.to.type;
        return {};
    };
    EXPECT_EQ(type_of_bias({.to = Form::HuggingFace}), std::nullopt);
    EXPECT_EQ(type_of_bias({.to = Form::Full, .type = ElementType::BFloat16}), ElementType::Float32);
    bias[2] = 0.001;
    EXPECT_EQ(type_of_bias({.to = Form::Full}), ElementType::Float32);
    EXPECT_ERROR(plan(source, {.to = Form::HuggingFace}), UserError, name + " has biases in the choice",
                 "mixtral has no place", "this program's formats");
}

TEST_P(AgainstTransformers, LogProbabilitiesAndGreedyChoices) {
    const model::Batch batch = first_batch();
    const at::Tensor log_probabilities = logits().to(at::kDouble).log_softmax(1);
    const at::Tensor counted = batch.targets.ge(0);
    const at::Tensor expected =
        -log_probabilities.gather(1, batch.targets.clamp_min(0).unsqueeze(1)).squeeze(1) * counted;
    const at::Tensor greedy = log_probabilities.argmax(1).eq(batch.targets);
    const LayerwiseModel model(source_, reference_.spec(), at::kFloat);
    const auto sums = model.softmax_sums({&batch, 1}, after_blocks(model, {&batch, 1}));
    EXPECT_TRUE(close(ops::cross_entropy(sums[0], batch.targets), expected, 1e-6));
    EXPECT_TRUE(identical(ops::target_is_largest(sums[0], batch.targets), greedy));
}

TEST_P(AgainstTransformers, LossOfTraining) {
    const model::Batch batch = first_batch();
    const LayerwiseModel model(source_, reference_.spec(), at::kFloat);
    const auto sums = model.softmax_sums({&batch, 1}, after_blocks(model, {&batch, 1}));
    const double num_counted = batch.targets.ge(0).sum().item<double>();
    EXPECT_NEAR(ops::cross_entropy_sum(sums[0], batch.targets).item<double>() / num_counted,
                reference_.read("loss0").item<double>(), 2e-6);
}

/// Weights of 16 bits widen without loss, so only the type that they were rounded to matters.
TEST_P(AgainstTransformers, WeightsOfAnyType) {
    const model::Batch batch = first_batch();
    for (const auto type : {at::kBFloat16, at::kHalf, at::kDouble}) {
        MemorySource stored(reference_.spec(), reference_.seed(), type);
        MemorySource widened(reference_.spec(), reference_.seed(), type);
        for (const checkpoint::TensorInfo& tensor : stored.tensors()) {
            const std::string name = tensor.name.substr(std::string("model/").size());
            widened.set(tensor.name, stored[name].to(at::kFloat));
        }
        const LayerwiseModel model(stored, reference_.spec(), at::kFloat);
        const LayerwiseModel same(widened, reference_.spec(), at::kFloat);
        EXPECT_TRUE(identical(after_blocks(model, {&batch, 1})[0], after_blocks(same, {&batch, 1})[0]));
    }
}

TEST_P(AgainstTransformers, Bfloat16StaysWithinTolerance) {
    const model::Batch batch = first_batch();
    const LayerwiseModel model(source_, reference_.spec(), at::kBFloat16);
    const at::Tensor found = model.logits(after_blocks(model, {&batch, 1})[0]);
    EXPECT_EQ(found.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(close(found, logits(), 3e-2));
}

INSTANTIATE_TEST_SUITE_P(Models, AgainstTransformers, ::testing::ValuesIn(Reference::names_of_all()),
                         [](const auto& model) { return model.param; });

model::ModelSpec spec_of(int64_t num_layers) {
    return {.name = "llama3",
            .vocab_size = 9000,
            .dim = 128,
            .num_layers = num_layers,
            .num_heads = 4,
            .num_kv_heads = 4,
            .head_dim = 32,
            .hidden_dim = 512};
}

model::Batch few_tokens() {
    const at::Tensor tokens = at::ones({8}, at::kLong);
    return {tokens, tokens, 1, 8};
}

TEST(LayerwiseModel, HoldsOneUnitAtATime) {
    static observe::MemoryMeter meter = observe::MemoryMeter::install();
    const ops::OpsContext context;
    constexpr int64_t kBlockBytes = 4 * (4 * 128 * 128 + 3 * 128 * 512 + 2 * 128);
    constexpr int64_t kTableBytes = 4 * 9000 * 128;  // more than four blocks
    const model::Batch batch = few_tokens();
    for (const auto stored : {at::kFloat, at::kBFloat16}) {
        const MemorySource source(spec_of(6), 5, stored);
        const LayerwiseModel model(source, spec_of(6), at::kFloat);
        const int64_t before = meter.current_bytes();
        meter.reset_peak();
        {
            Streams streams;
            model.run_unit(0, {&batch, 1}, streams);
            // The table, and before its conversion as many bytes at most.
            EXPECT_LT(meter.peak_bytes() - before, 2 * kTableBytes);
            meter.reset_peak();
            for (int64_t unit = 1; unit <= 6; ++unit) model.run_unit(unit, {&batch, 1}, streams);
            EXPECT_EQ(meter.current_bytes() - before, static_cast<int64_t>(streams[0].nbytes()));
            // The largest expected memory: the block, one of its tensors before conversion, and eight tokens'
            // residual streams.
            EXPECT_LT(meter.peak_bytes() - before, kBlockBytes + kBlockBytes / 3);
            EXPECT_GE(meter.peak_bytes() - before, kBlockBytes);
            meter.reset_peak();
            model.softmax_sums({&batch, 1}, streams);
            EXPECT_LT(meter.peak_bytes() - before, 2 * kTableBytes);
        }
        EXPECT_EQ(source.bytes_read(), source.num_bytes()) << "each weight is read once";
    }
}

// A GLM whose first_k_dense_replace is all of its layers.
TEST(LayerwiseModel, ComputesAGlmWithoutExperts) {
    const ops::OpsContext context(ops::Path::Plain);
    model::ModelSpec spec = Reference("glm4_moe").spec();
    spec.experts.reset();
    MemorySource source(spec, 5);
    constexpr int64_t kSequences = 2, kSeqLen = 12;
    const at::Tensor tokens = at::arange(kSequences * kSeqLen).remainder(spec.vocab_size);
    const model::Batch batch{tokens, tokens.flip(0), kSequences, kSeqLen};
    model::NamedTensors weights;
    for (const layout::ParamSpec& parameter : model::model_parameters(spec))
        weights[parameter.name] = source[parameter.name].to(at::kDouble);
    const LayerwiseModel wide(source, spec, at::kDouble);
    const auto sums = wide.softmax_sums({&batch, 1}, after_blocks(wide, {&batch, 1}));
    const auto in_sequences = [&](const at::Tensor& x) { return x.view({kSequences, kSeqLen}); };
    EXPECT_TRUE(close(ops::cross_entropy_sum(sums[0], batch.targets),
                      model::plain_model(spec, weights, in_sequences(tokens), in_sequences(batch.targets)),
                      1e-12));
}

/// Tensors without memory on a device that no other tensor can be combined with: this shows that the model
/// creates all its tensors on the device of the computation.
TEST(LayerwiseModel, ComputesOnItsDevice) {
    const ops::OpsContext context;
    const auto on_meta = at::TensorOptions(at::kMeta);
    const MemorySource source(spec_of(2), 5);
    for (const auto type : {at::kFloat, at::kBFloat16}) {
        const LayerwiseModel model(source, spec_of(2), on_meta.dtype(type));
        const at::Tensor tokens = at::ones({8}, on_meta.dtype(at::kLong));
        const model::Batch batch{tokens, tokens, 1, 8};
        Streams streams = {at::empty({8, 128}, on_meta.dtype(type))};
        for (int64_t unit = 1; unit <= 2; ++unit) model.run_unit(unit, {&batch, 1}, streams);
        EXPECT_TRUE(streams[0].is_meta());
        EXPECT_TRUE(model.softmax_sums({&batch, 1}, streams)[0].sums.is_meta());
        EXPECT_TRUE(model.logits(streams[0]).is_meta());
    }
}

/// A tensor larger than one conversion step is converted in several parts; the last part is shorter.
TEST(LayerwiseModel, ConvertsWeightsInParts) {
    model::ModelSpec spec = spec_of(1);
    spec.vocab_size = 70001;
    MemorySource source(spec, 5, at::kHalf);
    for (const auto type : {at::kFloat, at::kHalf}) {
        const model::Weights weights = LayerwiseModel(source, spec, type).read_unit(0);
        EXPECT_TRUE(identical(weights.tensors[0], source["tok_embeddings.weight"].to(type)));
    }
}

TEST(LayerwiseModel, RefusesWeightsOfAnotherModel) {
    const auto open = [](const MemorySource& source) { LayerwiseModel(source, spec_of(2), at::kFloat); };
    const std::string norm = "model/layers.1.ffn_norm.weight";
    MemorySource source(spec_of(2), 5);
    open(source);
    source.set("optimizer/first/norm.weight", at::ones({128}));
    open(source);

    source.set(norm, at::ones({127}));
    EXPECT_ERROR(open(source), UserError, "memory", norm, "[127]", "[128]");
    source.set(norm, at::ones({128}, at::kLong));
    EXPECT_ERROR(open(source), UserError, norm, "i64");
    source.remove(norm);
    EXPECT_ERROR(open(source), UserError, norm);
    EXPECT_ERROR(open(MemorySource(spec_of(3), 5)), UserError, "model/layers.2.");
}

}  // namespace
}  // namespace argosy::interop

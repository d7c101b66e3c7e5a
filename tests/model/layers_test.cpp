// Forward and backward of every layer, and of the whole model, are compared with autograd through the plain
// model.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <type_traits>
#include <vector>

#include "model/block.h"
#include "model/head.h"
#include "model/tiny_model.h"
#include "ops/ops_context.h"
#include "support/autograd.h"

namespace argosy::model {
namespace {

using testing::close;
using testing::differentiate;
using testing::Differentiated;
using testing::identical;

constexpr double kTolerance = 1e-10;  // in fp64
constexpr int64_t kSequences = 3, kSeqLen = 7;

// Recorded graphs copy the tensors of kBatchTensors: with one that is missing they would replay old data.
TEST(BatchTest, AllItsTensorsAreListed) {
    Batch batch;
    std::set<const void*> listed, tensors;
    for (const auto tensor : kBatchTensors) listed.insert(&(batch.*tensor));
    const auto add = [&]<class Member>(const Member& member) {
        if (std::is_same_v<Member, at::Tensor>) tensors.insert(&member);
    };
    const auto& [a, b, c, d, e, f, g, h, i] = batch;  // all members: for another number it does not compile
    std::apply([&](const auto&... member) { (add(member), ...); }, std::tie(a, b, c, d, e, f, g, h, i));
    EXPECT_EQ(listed, tensors);
}

/// differentiate over named tensors, with `x` before them.
struct NamedGradients {
    at::Tensor value, dx;
    NamedTensors gradients;
};
template <class Formula>
NamedGradients differentiate_by_name(const NamedTensors& values, const at::Tensor& x, const at::Tensor& dy,
                                     Formula formula) {
    std::vector<at::Tensor> inputs = {x};
    for (const auto& [name, value] : values) inputs.push_back(value);
    const auto by_name = [&](const std::vector<at::Tensor>& flat) {
        NamedTensors named;
        size_t i = 1;
        for (const auto& [name, value] : values) named[name] = flat[i++];
        return named;
    };
    const Differentiated found = differentiate(
        [&](const std::vector<at::Tensor>& in) { return formula(by_name(in), in[0]); }, inputs, dy);
    return {found.value, found.gradients[0], by_name(found.gradients)};
}

/// Argosy's kernels have no fp64, so their tolerance is fp32's rounding, like that of the plain operations.
struct Numerics {
    const char* name;
    at::ScalarType type;
    ops::Path path;
    double tolerance;
};
constexpr Numerics kNumerics[] = {{"", at::kDouble, ops::Path::Plain, kTolerance},
                                  {"Float", at::kFloat, ops::Path::Fused, 1e-5},
                                  {"FloatPlain", at::kFloat, ops::Path::Plain, 1e-5}};
using LayersParam = std::tuple<ModelSpec, Numerics>;

std::string param_name(const LayersParam& param) {
    const auto& [spec, numerics] = param;
    return spec.name + (spec.tied_embeddings ? "Tied" : "") + (spec.mlp_bias ? "Biased" : "") + numerics.name;
}
void PrintTo(const LayersParam& param, std::ostream* out) { *out << param_name(param); }

class LayersTest : public ::testing::TestWithParam<LayersParam> {
  protected:
    at::Tensor normal(at::IntArrayRef shape) { return model_.random.normal(shape, numerics_.type); }
    at::Tensor stream() { return normal({kSequences * kSeqLen, model_.spec.dim}); }
    ::testing::AssertionResult right(const at::Tensor& found, const at::Tensor& expected) const {
        return close(found, expected, numerics_.tolerance);
    }

    /// Checks that each parameter of the unit has a gradient of `scale` times autograd's.
    void expect_gradients(int unit, const NamedTensors& expected, double scale = 1) {
        for (const Parameter& parameter : model_.units[unit]) {
            const std::string& name = parameter.spec.name;
            EXPECT_FALSE(model_.sums.at(name).empty) << name;
            EXPECT_TRUE(right(model_.sums.at(name).sum, expected.at(name) * scale)) << name;
        }
    }

    const Numerics numerics_ = std::get<Numerics>(GetParam());
    ops::OpsContext context_{numerics_.path};
    TinyModel model_{std::get<ModelSpec>(GetParam()), numerics_.type, kSequences, kSeqLen};
};

TEST_P(LayersTest, Block) {
    constexpr int kUnit = 2, kLayer = 1;
    const Block block(model_.spec, kLayer, model_.axis, model_.context, model_.experts, model_.rope);
    const at::Tensor x = stream(), dy = stream();
    const auto in_sequences = [&](const at::Tensor& rows) { return rows.view({kSequences, kSeqLen, -1}); };
    const NamedGradients oracle =
        differentiate_by_name(model_.values, x, dy, [&](const NamedTensors& weights, const at::Tensor& in) {
            return plain_block(model_.spec, weights, kLayer, in_sequences(in)).view(in.sizes());
        });

    for (const double rounds : {1, 2, 3, 4}) {  // each adds to the sums of those before
        model_.tells_joins = rounds < 3;
        Tape tape;
        WeightWork work;
        const at::Tensor y = block.forward(model_.weights(kUnit), x, model_.batch, RecomputeMode::None, tape);
        EXPECT_TRUE(right(y, oracle.value));
        const at::Tensor dx = block.backward_input(model_.weights(kUnit), dy, model_.batch, tape, work);
        EXPECT_TRUE(right(dx, oracle.dx));
        EXPECT_FALSE(tape.input.defined() || tape.feed_forward.gate_up.defined())
            << "the tape is to be empty";
        work.run(model_.gradients(kUnit));
        expect_gradients(kUnit, oracle.gradients, rounds);
    }
}

TEST_P(LayersTest, HeadLossAndGradients) {
    const int unit = static_cast<int>(model_.spec.num_layers) + 1;
    const Head head(model_.spec, model_.axis);
    const at::Tensor x = stream();
    constexpr double kScale = 1.0 / 17;
    const NamedGradients oracle =
        differentiate_by_name(model_.values, x, at::full({}, kScale, at::kDouble),
                              [&](const NamedTensors& weights, const at::Tensor& in) {
                                  return plain_loss(model_.spec, weights, in, model_.batch.targets.clone());
                              });
    for (const double rounds : {1, 2}) {
        const auto [sum, dx] = head.loss_and_input_gradient(model_.weights(unit), x, model_.batch,
                                                            model_.scalar(kScale), model_.gradients(unit));
        EXPECT_TRUE(right(sum, oracle.value));
        EXPECT_TRUE(right(dx, oracle.dx));
        expect_gradients(unit, oracle.gradients, rounds);
    }
}

TEST_P(LayersTest, HeadLogitsAreThoseOfTheLoss) {
    const Head head(model_.spec, model_.axis);
    const at::Tensor x = stream();
    const Weights weights = model_.weights(static_cast<int>(model_.spec.num_layers) + 1);
    const at::Tensor logits = head.logits(weights, x), targets = model_.batch.targets;
    const at::Tensor picked = logits.gather(1, targets.clamp_min(0).unsqueeze(1)).squeeze(1);
    const at::Tensor loss = ((logits.logsumexp(1) - picked) * targets.ge(0)).sum();
    const Gradients gradients = model_.gradients(static_cast<int>(model_.spec.num_layers) + 1);
    EXPECT_TRUE(
        right(head.loss_and_input_gradient(weights, x, model_.batch, model_.scalar(1), gradients).sum, loss));
}

TEST_P(LayersTest, HeadSumsAreThoseOfTheLoss) {
    const Head head(model_.spec, model_.axis);
    const at::Tensor x = stream(), targets = model_.batch.targets;
    const Weights weights = model_.weights(static_cast<int>(model_.spec.num_layers) + 1);
    const Gradients gradients = model_.gradients(static_cast<int>(model_.spec.num_layers) + 1);
    const at::Tensor loss =
        head.loss_and_input_gradient(weights, x, model_.batch, model_.scalar(1), gradients).sum;
    const ops::SoftmaxSums sums = head.softmax_sums(weights, x, model_.batch);
    EXPECT_TRUE(identical(ops::cross_entropy_sum(sums, targets), loss));
    EXPECT_TRUE(
        identical(ops::target_is_largest(sums, targets), head.logits(weights, x).argmax(1).eq(targets)));
}

TEST_P(LayersTest, HeadSumsOfChosenRows) {
    const Head head(model_.spec, model_.axis);
    const at::Tensor x = stream();
    const Weights weights = model_.weights(static_cast<int>(model_.spec.num_layers) + 1);
    Batch batch = model_.batch;
    batch.head_rows = at::arange(1, batch.targets.size(0), 3);
    const ops::SoftmaxSums all = head.softmax_sums(weights, x, model_.batch),
                           chosen = head.softmax_sums(weights, x, batch);
    EXPECT_TRUE(identical(head_targets(batch), batch.targets.index_select(0, batch.head_rows)));
    EXPECT_TRUE(right(ops::cross_entropy(chosen, head_targets(batch)),
                      ops::cross_entropy(all, batch.targets).index_select(0, batch.head_rows)));
}

TEST_P(LayersTest, Embedding) {
    const Embedding embedding(model_.spec, model_.axis);
    const at::Tensor dy = stream();
    const Differentiated oracle =
        differentiate([&](const auto& in) { return plain_embedding(model_.spec, in[0], in[1]); },
                      {model_.values.at("tok_embeddings.weight"), model_.batch.tokens}, dy);
    Tape tape;
    WeightWork work;
    const at::Tensor x = embedding.forward(model_.weights(0), {}, model_.batch, RecomputeMode::None, tape);
    EXPECT_TRUE(right(x, oracle.value));
    EXPECT_FALSE(embedding.backward_input(model_.weights(0), dy, model_.batch, tape, work).defined());
    work.run(model_.gradients(0));
    expect_gradients(0, {{"tok_embeddings.weight", oracle.gradients[0]}});
}

// The gradient of a tied table is the sum of the head's and the embedding's.
TEST_P(LayersTest, WholeModel) {
    constexpr double kScale = 0.25;
    const NamedGradients oracle =
        differentiate_by_name(model_.values, model_.batch.tokens, at::full({}, kScale, at::kDouble),
                              [&](const NamedTensors& weights, const at::Tensor& tokens) {
                                  const at::Tensor targets = model_.batch.targets.clone();
                                  return plain_model(model_.spec, weights, tokens.view({kSequences, kSeqLen}),
                                                     targets.view({kSequences, kSeqLen}));
                              });
    EXPECT_TRUE(right(model_.loss_and_gradients(RecomputeMode::None, kScale), oracle.value));
    for (size_t unit = 0; unit < model_.units.size(); ++unit) {
        expect_gradients(static_cast<int>(unit), oracle.gradients);
    }
}

// The whole model on sequences of several documents gives the sum of what it gives on each document alone.
TEST_P(LayersTest, DocumentsAreSequencesOfTheirOwn) {
    const std::vector<std::vector<int64_t>> lengths = {{3, 4}, {7}, {1, 1, 5}};
    std::vector<int64_t> positions;
    for (const auto& sequence : lengths) {
        for (const int64_t length : sequence) {
            for (int64_t position = 0; position < length; ++position) positions.push_back(position);
        }
    }
    model_.batch.positions = at::tensor(positions, at::kLong);
    const NamedGradients oracle = differentiate_by_name(
        model_.values, model_.batch.tokens, at::full({}, 1, at::kDouble),
        [&](const NamedTensors& weights, const at::Tensor& tokens) {
            const at::Tensor targets = model_.batch.targets.clone();
            at::Tensor loss = at::zeros({}, at::kDouble);
            for (int64_t begin = 0; const auto& sequence : lengths) {
                for (const int64_t length : sequence) {
                    loss =
                        loss + plain_model(model_.spec, weights, tokens.narrow(0, begin, length).unsqueeze(0),
                                           targets.narrow(0, begin, length).unsqueeze(0));
                    begin += length;
                }
            }
            return loss;
        });
    for (const RecomputeMode mode : {RecomputeMode::None, RecomputeMode::Full}) {
        for (auto& [name, sum] : model_.sums) sum.empty = true;
        EXPECT_TRUE(right(model_.loss_and_gradients(mode, 1), oracle.value));
        for (size_t unit = 0; unit < model_.units.size(); ++unit) {
            expect_gradients(static_cast<int>(unit), oracle.gradients);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Families, LayersTest,
                         ::testing::Combine(::testing::ValuesIn(tiny_specs()),
                                            ::testing::ValuesIn(kNumerics)),
                         [](const auto& layers) { return param_name(layers.param); });

TEST(HeadTest, ChunksAreEqualAndOfWholeTiles) {
    const at::Tensor x = at::empty({0});
    EXPECT_EQ(Head::rows_per_chunk(100, 1000, x), 100);
    EXPECT_EQ(Head::rows_per_chunk(16384, 1000, x), 16384);
    EXPECT_EQ(Head::rows_per_chunk(20000, 1000, x), 10240) << "16640 rows are the most";
    EXPECT_EQ(Head::rows_per_chunk(3000, 8000, x), 1536) << "2048 are";
    EXPECT_EQ(Head::rows_per_chunk(2048, 150000, x), 512);
}

// The vocabulary is so large that the logits are computed in chunks.
TEST(HeadTest, ChunksAddUp) {
    const c10::InferenceMode guard;
    constexpr int64_t kTokens = 515;
    ModelSpec spec = tiny_specs()[0];
    spec.vocab_size = 33001;
    spec.dim = 3;
    TinyModel model(spec, at::kDouble, 1, kTokens);
    const at::Tensor x = model.random.normal({kTokens, 3}, at::kDouble);
    ASSERT_LT(Head::rows_per_chunk(kTokens, spec.vocab_size, x), kTokens);
    const NamedTensors values = {{"norm.weight", model.values.at("norm.weight")},
                                 {"output.weight", model.values.at("output.weight")}};
    const NamedGradients oracle = differentiate_by_name(
        values, x, at::full({}, 1, at::kDouble), [&](const NamedTensors& weights, const at::Tensor& in) {
            return plain_loss(spec, weights, in, model.batch.targets.clone());
        });
    const int unit = static_cast<int>(spec.num_layers) + 1;
    const auto [sum, dx] = Head(spec, model.axis)
                               .loss_and_input_gradient(model.weights(unit), x, model.batch, model.scalar(1),
                                                        model.gradients(unit));
    EXPECT_TRUE(close(sum, oracle.value, kTolerance));
    EXPECT_TRUE(close(dx, oracle.dx, kTolerance));
    for (const auto& [name, value] : values) {
        EXPECT_TRUE(close(model.sums.at(name).sum, oracle.gradients.at(name), kTolerance)) << name;
    }
}

}  // namespace
}  // namespace argosy::model

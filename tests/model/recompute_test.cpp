// Recompute gives the bits that were dropped: loss and gradients are those of a run that keeps everything.
#include <gtest/gtest.h>

#include "model/tiny_model.h"
#include "ops/ops_context.h"

namespace argosy::model {
namespace {

using testing::identical;

struct Variant {
    ModelSpec spec;
    at::ScalarType type;
    RecomputeMode mode;
    ops::Path path;
};

std::vector<Variant> variants() {
    std::vector<Variant> all;
    for (const ModelSpec& spec : tiny_specs()) {
        for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
            for (const RecomputeMode mode : {RecomputeMode::Selective, RecomputeMode::Full}) {
                for (const ops::Path path : {ops::Path::Fused, ops::Path::Plain}) {
                    all.push_back({spec, type, mode, path});
                }
            }
        }
    }
    return all;
}

std::string name_of(const Variant& variant) {
    return variant.spec.name + (variant.spec.tied_embeddings ? "Tied" : "") +
           (variant.spec.mlp_bias ? "Biased" : "") + toString(variant.type) +
           (variant.mode == RecomputeMode::Selective ? "Selective" : "Full") +
           (variant.path == ops::Path::Plain ? "Plain" : "");
}

void PrintTo(const Variant& variant, std::ostream* out) { *out << name_of(variant); }

class RecomputeTest : public ::testing::TestWithParam<Variant> {
  protected:
    ops::OpsContext context_{GetParam().path};
};

TEST_P(RecomputeTest, IsBitIdentical) {
    const auto& [spec, type, mode, path] = GetParam();
    TinyModel kept(spec, type, 2, 17), dropped(spec, type, 2, 17);
    EXPECT_TRUE(
        identical(dropped.loss_and_gradients(mode, 0.1), kept.loss_and_gradients(RecomputeMode::None, 0.1)));
    for (const auto& [name, gradient] : kept.sums) {
        EXPECT_TRUE(gradient.sum.isfinite().all().item<bool>()) << name;
        EXPECT_TRUE(identical(dropped.sums.at(name).sum, gradient.sum)) << name;
    }
}

// One product for all parameters of a join has the same bits as a product for each, with the processor's
// kernels.
TEST_P(RecomputeTest, JoinsChangeNoBit) {
    const auto& [spec, type, mode, path] = GetParam();
    if (path == ops::Path::Plain) GTEST_SKIP() << "LibTorch's operations";
    TinyModel joined(spec, type, 2, 17), apart(spec, type, 2, 17);
    apart.tells_joins = false;
    EXPECT_TRUE(identical(apart.loss_and_gradients(mode, 0.1), joined.loss_and_gradients(mode, 0.1)));
    for (const auto& [name, gradient] : joined.sums) {
        EXPECT_TRUE(identical(apart.sums.at(name).sum, gradient.sum)) << name;
    }
}

TEST_P(RecomputeTest, DropsWhatItSays) {
    const auto& [spec, type, mode, path] = GetParam();
    TinyModel model(spec, type, 2, 17);
    const at::Tensor x = model.random.normal({34, spec.dim}, type);
    Tape tape;
    constexpr int kLayer = 1;
    Block(spec, kLayer, model.axis, model.context, model.experts, model.rope)
        .forward(model.weights(kLayer + 1), x, model.batch, mode, tape);
    EXPECT_TRUE(tape.input.is_same(x));
    for (const ops::Operand& cheap :
         {tape.attention.input, tape.attention.output, tape.feed_forward.input, tape.feed_forward.activation,
          tape.experts.input, ops::Operand(tape.experts.activation),
          ops::Operand(tape.experts.shared.activation)}) {
        EXPECT_FALSE(cheap.defined());
    }
    const bool has_experts = layer_spec(spec, kLayer).has_experts;
    const at::Tensor gate_up = has_experts ? tape.experts.gate_up : tape.feed_forward.gate_up;
    for (const at::Tensor& product :
         {tape.attention.qkv, tape.attention.v, tape.attention.result.y, tape.middle, gate_up}) {
        EXPECT_EQ(product.defined(), mode == RecomputeMode::Selective);
    }
    EXPECT_EQ(tape.experts.shared.gate_up.defined(),
              has_experts && spec.experts->shared_hidden_dim > 0 && mode == RecomputeMode::Selective);
    // The tape keeps one form of q and k: with QK-norm the products before the norm.
    EXPECT_EQ(tape.attention.q.defined(), mode == RecomputeMode::Selective && spec.qk_norm == QkNorm::None);
    EXPECT_EQ(tape.experts.routing.experts.defined(), has_experts);  // the choice stays in every mode
    const HalfTape& second = has_experts ? static_cast<const HalfTape&>(tape.experts) : tape.feed_forward;
    for (const at::Tensor& added : {tape.attention.added, second.added})
        EXPECT_EQ(added.defined(), mode == RecomputeMode::Selective && spec.norms != NormPlace::Before);
}

INSTANTIATE_TEST_SUITE_P(Variants, RecomputeTest, ::testing::ValuesIn(variants()),
                         [](const auto& variant) { return name_of(variant.param); });

}  // namespace
}  // namespace argosy::model

#include "interop/compare.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "expect_error.h"
#include "interop/memory_source.h"
#include "support/reference.h"

namespace argosy::interop {
namespace {

using testing::MemorySource;
using testing::Reference;

class Compare : public ::testing::TestWithParam<std::string> {
  protected:
    MemorySource source(at::ScalarType type = at::kFloat) const {
        return MemorySource(spec_, reference_.seed(), type);
    }
    LogitsComparison compare(const MemorySource& original, const MemorySource& copy) const {
        return compare_logits({original, spec_}, {copy, spec_});
    }

    /// A matrix of the second layer's MLP, or of its experts.
    std::string of_mlp(const std::string& matrix) const {
        const bool has_experts = model::layer_spec(spec_, 1).has_experts;
        return (has_experts ? "layers.1.moe.experts." : "layers.1.feed_forward.") + matrix + ".weight";
    }

    const Reference reference_{GetParam()};
    const model::ModelSpec spec_ = reference_.spec();
};

TEST_P(Compare, EqualWeightsAreEqual) {
    std::vector<double> shares;
    const LogitsComparison found =
        compare_logits({source(), spec_}, {source(), spec_}, [&](double share) { shares.push_back(share); });
    EXPECT_TRUE(found.equal() && found.passed());
    EXPECT_EQ(found.largest_difference, 0);
    EXPECT_GT(found.largest_logit, 0.1);
    EXPECT_GT(found.num_positions, 16);
    EXPECT_EQ(found.first_different, "");
    EXPECT_NE(found.text().find("equal bit for bit"), std::string::npos);
    EXPECT_EQ(std::ssize(shares), spec_.num_layers + 2);
    EXPECT_EQ(shares.back(), 1);
}

/// Conversion to a type that holds every value changes nothing; fp32 and fp64 are both tested as sources.
TEST_P(Compare, WideningIsEqual) {
    const MemorySource narrow = source(at::kBFloat16);
    MemorySource wide = source(at::kBFloat16);
    for (const auto type : {at::kFloat, at::kDouble}) {
        for (const checkpoint::TensorInfo& tensor : narrow.tensors()) {
            wide.set(tensor.name, wide[tensor.name.substr(6)].to(type));
        }
        const LogitsComparison found = compare(narrow, wide);
        EXPECT_TRUE(found.equal() && found.passed());
    }
    EXPECT_TRUE(compare(source(at::kDouble), source()).passed());
}

TEST_P(Compare, NarrowingStaysWithinItsBound) {
    for (const auto type : {at::kBFloat16, at::kHalf}) {
        const LogitsComparison found = compare(source(), source(type));
        EXPECT_TRUE(found.equal() && found.passed()) << found.text();
        EXPECT_GT(found.largest_difference, 0.001 * found.bound * found.largest_logit) << found.text();
    }
}

/// Some tensors get a narrower type, others a wider one, as other tools write them.
TEST_P(Compare, MixedTypes) {
    MemorySource mixed = source();
    mixed.set("model/norm.weight", mixed["norm.weight"].to(at::kDouble));
    mixed.set("model/layers.0.attention.wq.weight", mixed["layers.0.attention.wq.weight"].to(at::kHalf));
    EXPECT_TRUE(compare(source(), mixed).passed());
    EXPECT_TRUE(compare(source(at::kBFloat16), mixed).first_different == "embedding");
}

/// The comparison finds a change of one weight by a thousandth in a copy of the same type, and of its last
/// bit in narrower types.
TEST_P(Compare, OneChangedWeightIsLocated) {
    MemorySource changed = source();
    changed[of_mlp("w2")].mutable_data_ptr<float>()[3] *= 1.001F;
    const LogitsComparison found = compare(source(), changed);
    EXPECT_FALSE(found.equal() || found.passed());
    EXPECT_EQ(found.first_different, "layers.1");
    EXPECT_NE(found.text().find("the output of layers.1"), std::string::npos) << found.text();

    for (const auto type : {at::kBFloat16, at::kHalf}) {
        MemorySource narrow = source(type);
        at::Tensor values = narrow["layers.1.attention.wv.weight"].view(at::kShort);
        values[3][4] += 1;
        const LogitsComparison also = compare(source(), narrow);
        EXPECT_FALSE(also.passed());
        EXPECT_EQ(also.first_different, "layers.1");
    }
}

/// A wrong name map is found, although at initial weights it moves the logits less than rounding does.
TEST_P(Compare, ExchangedWeightsAreFound) {
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        MemorySource exchanged = source(type);
        std::swap(exchanged[of_mlp("w1")], exchanged[of_mlp("w3")]);
        const LogitsComparison found = compare(source(), exchanged);
        EXPECT_FALSE(found.passed()) << found.text();
        EXPECT_EQ(found.first_different, "layers.1");
    }
}

/// A faithfully rounded copy fails if its type cannot hold the model.
TEST_P(Compare, OverflowIsFound) {
    MemorySource large = source(), narrow = source(at::kHalf);
    large["layers.0.attention.wo.weight"] *= 1e9;
    narrow.set("model/layers.0.attention.wo.weight", large["layers.0.attention.wo.weight"].to(at::kHalf));
    const LogitsComparison found = compare(large, narrow);
    EXPECT_TRUE(found.equal());
    EXPECT_FALSE(found.passed()) << found.text();
    EXPECT_TRUE(compare(large, large).passed());
}

/// A diverged model can still be converted.
TEST_P(Compare, NaNEqualsNaN) {
    const auto broken = [&](MemorySource& source) -> const MemorySource& {
        source["norm.weight"].fill_(NAN);
        return source;
    };
    MemorySource original = source(), same = source(), narrow = source(at::kBFloat16);
    EXPECT_TRUE(compare(broken(original), broken(same)).passed());
    EXPECT_TRUE(compare(original, broken(narrow)).passed());
    EXPECT_FALSE(compare(source(), same).passed());
    EXPECT_FALSE(compare(source(), narrow).passed());
}

TEST_P(Compare, OtherModelsAreRefused) {
    model::ModelSpec other = spec_;
    other.rope_theta *= 2;
    EXPECT_ERROR(compare_logits({source(), spec_}, {source(), other}), UserError, "memory", "rope_theta");
}

INSTANTIATE_TEST_SUITE_P(Models, Compare, ::testing::ValuesIn(Reference::names_of_all()),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace argosy::interop

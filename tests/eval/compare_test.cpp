#include "eval/compare.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "eval/memory_source.h"
#include "expect_error.h"
#include "support/reference.h"

namespace argosy::eval {
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

    const Reference reference_{GetParam()};
    const model::ModelSpec spec_ = reference_.spec();
};

TEST_P(Compare, EqualWeightsAreEqual) {
    std::vector<double> shares;
    const LogitsComparison found =
        compare_logits({source(), spec_}, {source(), spec_}, [&](double share) { shares.push_back(share); });
    EXPECT_TRUE(found.same_weights && found.equal && found.passed());
    EXPECT_EQ(found.largest_difference, 0);
    EXPECT_EQ(found.divergence, 0);
    EXPECT_GT(found.largest_logit, 0.1);
    EXPECT_GT(found.num_positions, 16);
    EXPECT_EQ(found.first_different, "");
    EXPECT_NE(found.text().find("equal bit for bit"), std::string::npos);
    EXPECT_EQ(std::ssize(shares), spec_.num_layers + 2);
    EXPECT_EQ(shares.back(), 1);
}

/// A type without loss changes nothing, in either direction of fp32 and fp64.
TEST_P(Compare, WideningIsEqual) {
    const MemorySource narrow = source(at::kBFloat16);
    MemorySource wide = source(at::kBFloat16);
    for (const auto type : {at::kFloat, at::kDouble}) {
        for (const checkpoint::TensorInfo& tensor : narrow.tensors()) {
            wide.set(tensor.name, wide[tensor.name.substr(6)].to(type));
        }
        const LogitsComparison found = compare(narrow, wide);
        EXPECT_TRUE(found.same_weights && found.equal && found.passed());
    }
    EXPECT_TRUE(compare(source(at::kDouble), source()).equal);
}

TEST_P(Compare, NarrowingStaysWithinItsBound) {
    for (const auto type : {at::kBFloat16, at::kHalf}) {
        const LogitsComparison found = compare(source(), source(type));
        EXPECT_FALSE(found.same_weights || found.equal);
        EXPECT_TRUE(found.passed()) << found.text();
        EXPECT_GT(found.largest_difference, 0.001 * found.bound * found.largest_logit) << found.text();
        EXPECT_GT(found.divergence, 0);
        EXPECT_LT(found.divergence, 1e-3);
        EXPECT_EQ(found.first_different, "embedding");
        EXPECT_NE(found.text().find("KL"), std::string::npos);
    }
}

TEST_P(Compare, OneBitIsFoundWhereItIs) {
    MemorySource changed = source();
    float& weight = changed["layers.1.feed_forward.w2.weight"].mutable_data_ptr<float>()[3];
    weight = std::nextafter(weight, 1e9F) * 1.001F;
    const LogitsComparison found = compare(source(), changed);
    EXPECT_TRUE(found.same_weights);
    EXPECT_FALSE(found.equal || found.passed());
    EXPECT_EQ(found.first_different, "layers.1");
    EXPECT_NE(found.text().find("must be equal"), std::string::npos);
}

/// What a wrong name map does, also where the copy is narrower and bits may differ.
TEST_P(Compare, ExchangedWeightsAreFound) {
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        MemorySource exchanged = source(type);
        std::swap(exchanged["layers.1.feed_forward.w1.weight"], exchanged["layers.1.feed_forward.w3.weight"]);
        const LogitsComparison found = compare(source(), exchanged);
        EXPECT_FALSE(found.passed()) << found.text();
    }
}

TEST_P(Compare, WhatIsNotFiniteIsFound) {
    MemorySource broken = source(at::kHalf);
    broken["layers.0.attention.wo.weight"].fill_(std::numeric_limits<double>::infinity());
    EXPECT_FALSE(compare(source(), broken).passed());
}

TEST_P(Compare, OtherModelsAreRefused) {
    model::ModelSpec other = spec_;
    other.rope_theta *= 2;
    EXPECT_ERROR(compare_logits({source(), spec_}, {source(), other}), UserError, "memory", "rope_theta");
}

INSTANTIATE_TEST_SUITE_P(Models, Compare, ::testing::ValuesIn(Reference::names_of_all()),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace argosy::eval

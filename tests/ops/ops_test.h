// What the tests of ops share: each runs once per line of kVariants. A new element type or kernel is one line
// more.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "support/autograd.h"
#include "support/tensors.h"

namespace argosy::ops {

using ::argosy::testing::close;
using ::argosy::testing::differentiate;
using ::argosy::testing::Differentiated;
using ::argosy::testing::identical;

struct Variant {
    const char* name;
    at::ScalarType type;
    double tolerance;  // against the formula in fp64 at the same inputs, of the largest element
};
inline void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

// bf16 has 8 bits: each rounding is 2^-9; an operation rounds its result and at most a few things inside.
inline constexpr Variant kVariants[] = {
    {"fp64", at::kDouble, 1e-12}, {"fp32", at::kFloat, 1e-5}, {"bf16", at::kBFloat16, 1.0 / 128}};

class OpsTest : public ::testing::TestWithParam<Variant> {
  protected:
    at::Tensor normal(at::IntArrayRef shape, double scale = 1) {
        return random_.normal(shape, GetParam().type, scale);
    }

    /// Right within the variant's tolerance, and of its type.
    ::testing::AssertionResult right(const at::Tensor& actual, const at::Tensor& expected) const {
        if (actual.scalar_type() != GetParam().type) {
            return ::testing::AssertionFailure() << "a result of type " << actual.toString();
        }
        return close(actual, expected, GetParam().tolerance);
    }

    c10::InferenceMode guard_;  // as the program runs
    ::argosy::testing::RandomTensors random_{1};
};

inline std::string variant_name(const ::testing::TestParamInfo<Variant>& variant) {
    return variant.param.name;
}

}  // namespace argosy::ops

/// Runs the fixture's tests once per variant.
#define ARGOSY_FOR_EACH_VARIANT(Fixture) \
    INSTANTIATE_TEST_SUITE_P(Variants, Fixture, ::testing::ValuesIn(kVariants), variant_name)

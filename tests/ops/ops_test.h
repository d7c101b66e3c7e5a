// Shared parts of the tests of ops. Each test runs once per line of kVariants, and CTest runs all of them
// again for every instruction set of the kernels (ARGOSY_CPU_KERNELS).
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "base/environment.h"
#include "kernels/table.h"
#include "ops/ops_context.h"
#include "support/autograd.h"
#include "support/tensors.h"

namespace argosy::ops {

using ::argosy::testing::close;
using ::argosy::testing::differentiate;
using ::argosy::testing::Differentiated;
using ::argosy::testing::identical;
using ::argosy::testing::placed;

struct Variant {
    const char* name;
    Path path;
    at::ScalarType type;
    double
        tolerance;  // error against the formula in fp64 on the same inputs, relative to the largest element
};
inline void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

// bf16 has 8 bits, so each rounding error is up to 2^-9; an operation rounds its result and at most a few
// intermediate values.
inline constexpr Variant kVariants[] = {{"fp64", Path::Plain, at::kDouble, 1e-12},
                                        {"plain_fp32", Path::Plain, at::kFloat, 1e-5},
                                        {"plain_bf16", Path::Plain, at::kBFloat16, 1.0 / 128},
                                        {"fp32", Path::Fused, at::kFloat, 1e-5},
                                        {"bf16", Path::Fused, at::kBFloat16, 1.0 / 128}};

/// Whether this CPU runs the kernels that ARGOSY_CPU_KERNELS names, if it is set.
inline bool kernels_available() {
    const std::string name = Environment::read().cpu_kernels;
    const auto tables = kernels::available_tables();
    return name.empty() || std::any_of(tables.begin(), tables.end(),
                                       [&](const kernels::Table* table) { return name == table->name; });
}

/// Frequencies of a rotation, one for each pair of a head's elements.
inline std::vector<double> rotation_frequencies(int64_t head_dim) {
    std::vector<double> made;
    for (int64_t i = 0; i < head_dim; i += 2)
        made.push_back(std::pow(100.0, -static_cast<double>(i) / static_cast<double>(head_dim)));
    return made;
}

class OpsTest : public ::testing::TestWithParam<Variant> {
  protected:
    void SetUp() override {
        if (!kernels_available()) GTEST_SKIP() << "this processor lacks the kernels' instruction set";
    }

    at::Tensor normal(at::IntArrayRef shape, double scale = 1) {
        return random_.normal(shape, GetParam().type, scale);
    }

    /// The tensor has the variant's type and is correct within its tolerance.
    ::testing::AssertionResult right(const at::Tensor& actual, const at::Tensor& expected) const {
        if (actual.scalar_type() != GetParam().type) {
            return ::testing::AssertionFailure() << "a result of type " << actual.toString();
        }
        return close(actual, expected, GetParam().tolerance);
    }

    /// compute(), which returns tensors, gives the same bits if each operation runs separately.
    template <class Compute>
    static void expect_same_bits_separately(Compute compute) {
        const std::vector<at::Tensor> expected = compute();
        const OpsContext context(GetParam().path == Path::Fused ? Path::Separate : GetParam().path);
        const std::vector<at::Tensor> found = compute();
        for (size_t i = 0; i < expected.size(); ++i) {
            EXPECT_TRUE(identical(found[i], expected[i])) << "tensor " << i << " of " << expected[i].sizes();
        }
    }

    OpsContext context_{GetParam().path};
    ::argosy::testing::RandomTensors random_{1};
};

inline std::string variant_name(const ::testing::TestParamInfo<Variant>& variant) {
    return variant.param.name;
}

}  // namespace argosy::ops

/// Runs the fixture's tests once per variant.
#define ARGOSY_FOR_EACH_VARIANT(Fixture) \
    INSTANTIATE_TEST_SUITE_P(Variants, Fixture, ::testing::ValuesIn(kVariants), variant_name)

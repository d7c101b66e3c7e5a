// What the log says of a run whose products cast their operands.
#include "setup/product_casts.h"

#include <gtest/gtest.h>

namespace argosy::setup {
namespace {

constexpr cublas::Target kHopper{90, 130000}, kBlackwell{100, 130000}, kNone{};

std::string ways(const char* recipe, const cublas::Target& target, int64_t num_tokens = 4096) {
    return ways_of_products(*ops::find_recipe(recipe), {{64, 32}, {32, 64}}, at::kBFloat16, num_tokens,
                            target);
}

TEST(WaysOfProducts, NameTheKindsAndTheReasons) {
    EXPECT_EQ(ways("tensorwise", kHopper), "outputs, input gradients, weight gradients in float8");
    EXPECT_EQ(
        ways("tensorwise", kHopper, 40),
        "weight gradients emulated in bf16, because 16 does not divide 40 terms of a sum; outputs, input "
        "gradients in float8");
    EXPECT_EQ(ways("rowwise_with_gw_hp", kHopper), "outputs, input gradients in float8");
    EXPECT_EQ(ways("rowwise", kBlackwell),
              "outputs, input gradients, weight gradients in float8, scaled afterwards, because cuBLASLt has "
              "scales of rows only for compute capability 9.0, from version 12.9 on");
    EXPECT_EQ(ways("mxfp8_cublas", kBlackwell), "outputs, input gradients, weight gradients in float8");
    EXPECT_EQ(ways("mxfp8_cublas", kNone),
              "outputs, input gradients, weight gradients emulated in bf16, because there is no GPU");
}

}  // namespace
}  // namespace argosy::setup

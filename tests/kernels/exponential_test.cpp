// The exponential of every table against fp64. The kernel that returns it unchanged is the cross-entropy
// gradient of a row without its target, with maximum 0 and sum 1.
#include <cmath>
#include <vector>

#include "kernels/tables.h"

namespace argosy::kernels {
namespace {

class ExponentialTest : public TableTest {
  protected:
    std::vector<float> exponentials(std::vector<float> x) {
        constexpr int64_t kElsewhere = 1 << 30;
        constexpr float kZero = 0, kOne = 1;
        GetParam()->fp32.cross_entropy_gradient({.num_rows = 1,
                                                 .num_columns = static_cast<int64_t>(x.size()),
                                                 .begin = 0,
                                                 .targets = &kElsewhere,
                                                 .maxima = &kZero,
                                                 .exponentials = &kOne,
                                                 .scale = &kOne,
                                                 .logits = x.data()});
        return x;
    }
};

TEST_P(ExponentialTest, IsRightToTwoUnitsInTheLastPlace) {
    std::vector<float> points;
    for (float x = -87.3F; x < 88.3F; x += 1.7e-4F) points.push_back(x);
    for (float x = 1; x > 1e-38F; x *= 0.7F) points.insert(points.end(), {x, -x});
    const std::vector<float> found = exponentials(points);
    double largest = 0;
    for (size_t i = 0; i < points.size(); ++i) {
        const double exact = std::exp(static_cast<double>(points[i]));
        const double unit = std::ldexp(1, std::ilogb(exact) - 23);
        largest = std::max(largest, std::abs(found[i] - exact) / unit);
    }
    EXPECT_LE(largest, 2) << "units in the last place";
    RecordProperty("largest_error_in_units", std::to_string(largest));
}

TEST_P(ExponentialTest, EndsOfTheRange) {
    const float infinity = INFINITY;
    const std::vector<float> found =
        exponentials({0, -0.0F, -88, -1e30F, -infinity, 88.4F, 1e30F, infinity, NAN, -NAN, -87.5F});
    EXPECT_EQ(found[0], 1);
    EXPECT_EQ(found[1], 1);
    for (const int i : {2, 3, 4}) EXPECT_EQ(found[i], 0) << i;
    for (const int i : {5, 6, 7}) EXPECT_EQ(found[i], infinity) << i;
    for (const int i : {8, 9}) EXPECT_TRUE(std::isnan(found[i])) << i;
    EXPECT_NEAR(found[10], std::exp(-87.5), 2e-45) << "the last before 0, a subnormal";
}

ARGOSY_FOR_EACH_TABLE(ExponentialTest);

}  // namespace
}  // namespace argosy::kernels

// RMSNorm on GPUs against plain loops in fp64 and against the CPU's kernel.
#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "kernels/gpu_test.h"

namespace argosy::kernels {
namespace {

constexpr float kEps = 1e-5F;
constexpr double kSmallest = 0x1p-14;  // errors of smaller results are relative to it

struct Case {
    int64_t num_rows, row_size;
    bool aligned = true;
    float weight_offset = 0;
};

/// Row lengths around every limit between row shapes (kernels/cuda/rows.cuh), for every type, and beyond the
/// longest.
std::vector<Case> cases() {
    std::vector<Case> all = {{300, 64}, {300, 128}, {300, 120}, {5, 64, false}, {3, 1000, false}};
    for (const int64_t size : {64, 896, 8201, 16392}) all.push_back({3, size, true, 1});
    for (const int64_t size : {1, 7, 24, 136, 256, 520, 896, 1032}) {
        all.push_back({1, size});
        all.push_back({20, size});
    }
    for (const int64_t size : {2048, 2056, 4096, 5000, 8192, 8200}) all.push_back({5, size});
    for (const int64_t size : {8201, 16384, 16392}) all.push_back({2, size});
    return all;
}

template <class T>
struct Inputs {
    Memory<T> x, residual, weight, dy;
};

template <class T>
struct Exact {
    std::vector<double> inverse, dweight;
    std::vector<double> y, dx;
};

template <class T>
Exact<T> exact(const Case& size, const Inputs<T>& inputs, bool joins) {
    const Memory<T>& x = inputs.x;
    Exact<T> result;
    result.dweight.resize(size.row_size);
    for (int64_t row = 0; row < size.num_rows; ++row) {
        const int64_t begin = row * size.row_size;
        double squares = 0;
        const auto weight = [&](int64_t i) { return size.weight_offset + inputs.weight.at(i); };
        for (int64_t i = 0; i < size.row_size; ++i) squares += x.at(begin + i) * x.at(begin + i);
        const double inverse = 1 / std::sqrt(squares / static_cast<double>(size.row_size) + kEps);
        result.inverse.push_back(inverse);
        double products = 0;
        for (int64_t i = 0; i < size.row_size; ++i) {
            const double normed = x.at(begin + i) * inverse, dy = inputs.dy.at(begin + i);
            result.y.push_back(normed * weight(i));
            products += dy * weight(i) * normed;
            result.dweight[i] += dy * normed;
        }
        const double mean = products / static_cast<double>(size.row_size);
        for (int64_t i = 0; i < size.row_size; ++i) {
            const double normed = x.at(begin + i) * inverse;
            const double own = (inputs.dy.at(begin + i) * weight(i) - normed * mean) * inverse;
            result.dx.push_back(own + (joins ? inputs.residual.at(begin + i) : 0));
        }
    }
    return result;
}

template <class T>
class GpuRmsNorm : public GpuTest {
  protected:
    Inputs<T> inputs(const Case& size) {
        const int64_t count = size.num_rows * size.row_size;
        return {random<T>(count, size.aligned), random<T>(count, size.aligned),
                random<T>(size.row_size, size.aligned), random<T>(count, size.aligned)};
    }

    /// y, inverse_rms.
    static auto forward(const Case& size, const Inputs<T>& in, float* largest = nullptr) {
        Memory<T> y(in.x.size(), size.aligned);
        Memory<float> inverse(size.num_rows, size.aligned);
        gpu<T>().rms_norm({size.num_rows,
                           size.row_size,
                           in.x.gpu(),
                           in.weight.gpu(),
                           kEps,
                           y.gpu(),
                           inverse.gpu(),
                           {},
                           size.weight_offset},
                          nullptr, largest);
        return std::tuple(y, inverse);
    }

    /// dx, dweight (whose elements start at 1).
    static auto backward(const Case& size, const Inputs<T>& in, const Memory<float>& inverse, bool joins) {
        Memory<T> dx(in.x.size(), size.aligned);
        Memory<float> dweight(size.row_size, size.aligned);
        for (int64_t i = 0; i < size.row_size; ++i) dweight[i] = 1;
        const RmsNormBackward<T> args = {size.num_rows,
                                         size.row_size,
                                         in.dy.gpu(),
                                         in.x.gpu(),
                                         in.weight.gpu(),
                                         inverse.gpu(),
                                         joins ? in.residual.gpu() : nullptr,
                                         dx.gpu(),
                                         dweight.gpu(),
                                         {},
                                         {},
                                         size.weight_offset};
        const int64_t bytes = gpu<T>().rms_norm_backward_scratch_bytes(args);
        EXPECT_EQ(bytes % int64_t{sizeof(float)}, 0);
        Memory<float> scratch(bytes / int64_t{sizeof(float)}, true);
        gpu<T>().rms_norm_backward(args, scratch.gpu(), nullptr);
        EXPECT_EQ(scratch.faults_outside(), 0);
        return std::tuple(dx, dweight);
    }

    void check(const Case& size, bool with_residual) {
        const std::string where = std::to_string(size.num_rows) + " x " + std::to_string(size.row_size) +
                                  (size.weight_offset != 0 ? " with offset" : "");
        SCOPED_TRACE(where + (with_residual ? " with residual" : ""));
        const auto in = inputs(size);
        const auto [y, inverse] = in_any_order([&] { return forward(size, in); });
        const auto right = exact(size, in, with_residual);
        expect_near(
            "inverse_rms", inverse, [&](int64_t i) { return right.inverse[i]; }, 2e-6);
        expect_near(
            "y", y, [&](int64_t i) { return right.y[i]; }, 4 * rounding<T>(), kSmallest);
        const auto [dx, dweight] = in_any_order([&] { return backward(size, in, inverse, with_residual); });
        expect_near(
            "dx", dx, [&](int64_t i) { return right.dx[i]; }, 4 * rounding<T>(), 10);
        const double noise = std::sqrt(static_cast<double>(size.num_rows));
        expect_near(
            "dweight", dweight, [&](int64_t i) { return 1 + right.dweight[i]; }, 1e-5, noise);
    }
};

using ElementTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(GpuRmsNorm, ElementTypes);

TYPED_TEST(GpuRmsNorm, MatchesPlainLoops) {
    set_multiprocessors(1);
    for (const Case& size : cases()) this->check(size, false);
}

TYPED_TEST(GpuRmsNorm, MatchesPlainLoopsWithResidual) {
    for (const Case& size : cases()) this->check(size, true);
}

TYPED_TEST(GpuRmsNorm, MatchesTheCpu) {
    const Case size = {20, 896};
    const auto in = this->inputs(size);
    const auto [y, inverse] = this->forward(size, in);
    Memory<TypeParam> right_y(in.x.size(), true);
    Memory<float> right_inverse(size.num_rows, true);
    available_tables()[0]->of<TypeParam>().rms_norm({size.num_rows, size.row_size, in.x.host(),
                                                     in.weight.host(), kEps, right_y.host(),
                                                     right_inverse.host()});
    expect_near(
        "y", y, [&](int64_t i) { return right_y.at(i); }, 2 * rounding<TypeParam>());
    expect_near(
        "inverse_rms", inverse, [&](int64_t i) { return right_inverse.at(i); }, 1e-6);
}

// A number that is not finite affects only its own row, as on a CPU.
TYPED_TEST(GpuRmsNorm, PropagatesNonfiniteNumbers) {
    using T = TypeParam;
    for (const int64_t row_size : {64, 896, 4096, 17}) {
        const Case size = {9, row_size};
        for (const double bad :
             {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
            auto in = this->inputs(size);
            in.x[4 * row_size + 3] = narrow<T>(bad);
            const auto [y, inverse] = this->forward(size, in);
            const auto [dx, dweight] = this->backward(size, in, inverse, true);
            Memory<T> right_y = y, right_dx = dx;
            Memory<float> right_inverse = inverse, right_dweight(row_size, true);
            for (int64_t i = 0; i < row_size; ++i) right_dweight[i] = 1;
            const auto& processor = table().of<T>();
            processor.rms_norm(
                {9, row_size, in.x.host(), in.weight.host(), kEps, right_y.host(), right_inverse.host()});
            processor.rms_norm_backward({9, row_size, in.dy.host(), in.x.host(), in.weight.host(),
                                         inverse.host(), in.residual.host(), right_dx.host(),
                                         right_dweight.host()});
            EXPECT_EQ(kinds(y), kinds(right_y));
            EXPECT_EQ(kinds(inverse), kinds(right_inverse));
            EXPECT_EQ(kinds(dx), kinds(right_dx));
            EXPECT_EQ(kinds(dweight), kinds(right_dweight));
        }
    }
}

// The results are those without `largest`.
TYPED_TEST(GpuRmsNorm, FindsTheLargestMagnitudeOfItsResult) {
    for (Case size : cases()) {
        size.num_rows = std::min<int64_t>(size.num_rows, 20);
        SCOPED_TRACE(std::to_string(size.num_rows) + " x " + std::to_string(size.row_size));
        const auto in = this->inputs(size);
        const auto [y, inverse] = this->forward(size, in);
        const auto [found, of_y] = in_any_order([&] {
            Memory<float> largest({0.0F});
            const auto forward = this->forward(size, in, largest.gpu());
            return std::tuple(std::get<0>(forward), largest);
        });
        EXPECT_TRUE(found.same_bits(y));
        EXPECT_TRUE(of_y.same_bits(this->largest_of(y))) << of_y.at(0);
        EXPECT_GT(of_y.at(0), 0);
    }
}

TYPED_TEST(GpuRmsNorm, TheLargestMagnitudeIsNaNIfAResultIs) {
    for (const Case& size : {Case{9, 896}, Case{5, 17}}) {
        auto in = this->inputs(size);
        in.x[2 * size.row_size + 3] = narrow<TypeParam>(std::numeric_limits<double>::quiet_NaN());
        Memory<float> of_y({0.0F});
        this->forward(size, in, of_y.gpu());
        EXPECT_TRUE(std::isnan(of_y.at(0)));
    }
}

TYPED_TEST(GpuRmsNorm, NothingToDoIsNoLaunch) {
    gpu_table()->of<TypeParam>().rms_norm({.num_rows = 0, .row_size = 8}, nullptr, nullptr);
    gpu_table()->of<TypeParam>().rms_norm_backward({.num_rows = 0, .row_size = 8}, nullptr, nullptr);
}

}  // namespace
}  // namespace argosy::kernels

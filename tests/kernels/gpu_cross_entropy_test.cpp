// Softmax cross-entropy on GPUs against plain loops in fp64, and against the CPU's results if logits are
// infinite or NaN.
#include <limits>
#include <tuple>

#include "kernels/gpu_test.h"

namespace argosy::kernels {
namespace {

struct Case {
    int64_t num_rows, num_columns, begin = 0;
    bool aligned = true;
};
constexpr Case kCases[] = {{1, 1},      {3, 7},          {2, 8, 40}, {5, 1000},  {2, 4096},
                           {3, 16384},  {2, 16400, 100}, {2, 33333}, {1, 65536}, {4, 520, 3, false},
                           {2, 2055, 9}};
constexpr float kScale = 0.25F;

template <class T>
struct Inputs {
    Case size;
    Memory<T> logits;
    Memory<int64_t> targets;
    Memory<float> scale = Memory<float>({kScale});
};

/// Targets at both ends, beyond them, in the middle, and none.
Memory<int64_t> some_targets(const Case& size) {
    const int64_t end = size.begin + size.num_columns;
    const std::vector<int64_t> all = {end - 1,    -1,  size.begin + size.num_columns / 2,
                                      size.begin, end, std::max<int64_t>(0, size.begin - 1)};
    Memory<int64_t> targets(size.num_rows, /*aligned=*/true);
    for (int64_t row = 0; row < size.num_rows; ++row) targets[row] = all[row % std::ssize(all)];
    return targets;
}

template <class T>
auto sums_of(const Inputs<T>& in) {
    const int64_t num_rows = in.size.num_rows;
    Memory<float> maxima(num_rows, true), exponentials(num_rows, true), target_logits(num_rows, true);
    gpu_table()->of<T>().softmax_sums(
        {num_rows, in.size.num_columns, in.size.begin, in.logits.gpu(), in.targets.gpu(), maxima.gpu(),
         exponentials.gpu(), target_logits.gpu()},
        nullptr);
    return std::tuple(maxima, exponentials, target_logits);
}

template <class T>
Memory<T> gradient_of(const Inputs<T>& in, const Memory<float>& maxima, const Memory<float>& exponentials) {
    Memory<T> gradient = in.logits;
    gpu_table()->of<T>().cross_entropy_gradient(
        {in.size.num_rows, in.size.num_columns, in.size.begin, in.targets.gpu(), maxima.gpu(),
         exponentials.gpu(), in.scale.gpu(), gradient.gpu()},
        nullptr);
    return gradient;
}

/// The definition, in fp64, from given sums.
template <class T>
double exact_gradient(const Inputs<T>& in, const Memory<float>& maxima, const Memory<float>& exponentials,
                      int64_t i) {
    const int64_t row = i / in.size.num_columns, column = in.size.begin + i % in.size.num_columns;
    if (in.targets[row] < 0) return 0;
    const double softmax = std::exp(in.logits.at(i) - maxima.at(row)) / exponentials.at(row);
    return kScale * (softmax - (column == in.targets[row] ? 1 : 0));
}

template <class T>
class GpuCrossEntropy : public GpuTest {
  protected:
    Inputs<T> inputs(const Case& size) {
        return {size, this->template random<T>(size.num_rows * size.num_columns, size.aligned, 4),
                some_targets(size)};
    }
};
using ElementTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(GpuCrossEntropy, ElementTypes);

TYPED_TEST(GpuCrossEntropy, SumsMatchPlainLoops) {
    for (const Case& size : kCases) {
        SCOPED_TRACE(std::to_string(size.num_rows) + " x " + std::to_string(size.num_columns));
        const auto in = this->inputs(size);
        const auto [maxima, exponentials, target_logits] = in_any_order([&] { return sums_of(in); });
        std::vector<double> largest(size.num_rows, -INFINITY), sums(size.num_rows), target(size.num_rows);
        for (int64_t row = 0; row < size.num_rows; ++row) {
            const auto logit = [&](int64_t column) { return in.logits.at(row * size.num_columns + column); };
            for (int64_t i = 0; i < size.num_columns; ++i) largest[row] = std::max(largest[row], logit(i));
            for (int64_t i = 0; i < size.num_columns; ++i) sums[row] += std::exp(logit(i) - largest[row]);
            const int64_t column = in.targets[row] - size.begin;
            const bool present = in.targets[row] >= 0 && column >= 0 && column < size.num_columns;
            target[row] = present ? logit(column) : 0;
        }
        const auto of = [](const auto& numbers) { return [&](int64_t i) { return numbers[i]; }; };
        expect_near("maxima", maxima, of(largest), 0);
        expect_near("exponentials", exponentials, of(sums), 3e-6);
        expect_near("target logits", target_logits, of(target), 0);
    }
}

TYPED_TEST(GpuCrossEntropy, GradientsMatchPlainLoops) {
    for (const Case& size : kCases) {
        SCOPED_TRACE(std::to_string(size.num_rows) + " x " + std::to_string(size.num_columns));
        const auto in = this->inputs(size);
        const auto sums = sums_of(in);
        const auto &maxima = std::get<0>(sums), &exponentials = std::get<1>(sums);
        const auto [gradient] =
            in_any_order([&] { return std::tuple(gradient_of(in, maxima, exponentials)); });
        expect_near(
            "gradient", gradient, [&](int64_t i) { return exact_gradient(in, maxima, exponentials, i); },
            3 * rounding<TypeParam>(), 1e-3);
    }
}

TYPED_TEST(GpuCrossEntropy, InOneLaunchGivesTheSameBits) {
    for (Case size : kCases) {
        SCOPED_TRACE(std::to_string(size.num_rows) + " x " + std::to_string(size.num_columns));
        size.begin = 0;
        const auto in = this->inputs(size);
        const auto [maxima, exponentials, gradient, target_logits] = in_any_order([&] {
            Memory<TypeParam> logits = in.logits;
            Memory<float> largest(size.num_rows, true), sums(size.num_rows, true),
                target(size.num_rows, true);
            this->template gpu<TypeParam>().cross_entropy(
                {size.num_rows, size.num_columns, in.targets.gpu(), in.scale.gpu(), logits.gpu(),
                 largest.gpu(), sums.gpu(), target.gpu()},
                nullptr);
            return std::tuple(largest, sums, logits, target);
        });
        const auto sums = sums_of(in);
        EXPECT_TRUE(maxima.same_bits(std::get<0>(sums)));
        EXPECT_TRUE(exponentials.same_bits(std::get<1>(sums)));
        EXPECT_TRUE(target_logits.same_bits(std::get<2>(sums)));
        EXPECT_TRUE(gradient.same_bits(gradient_of(in, std::get<0>(sums), std::get<1>(sums))));
    }
}

// Rows that are all -inf, rows with one infinity or NaN among many numbers, and rows with every kind of
// value.
TYPED_TEST(GpuCrossEntropy, NonfiniteInputsGiveTheCpusResults) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = NAN;
    for (const int64_t num_columns : {4, 8, 3000, 20001}) {
        const std::vector<std::vector<double>> rows = {
            {-kInfinity}, {kNaN}, {kInfinity}, {-kInfinity, kNaN}, {kInfinity, kNaN, -kInfinity}, {1}};
        for (const bool everywhere : {true, false}) {
            SCOPED_TRACE(std::to_string(num_columns) + (everywhere ? " everywhere" : " among others"));
            auto in = this->inputs({std::ssize(rows), num_columns});
            for (int64_t row = 0; row < std::ssize(rows); ++row) in.targets[row] = num_columns - 1;
            for (int64_t row = 0; row < std::ssize(rows); ++row) {
                const int64_t size = everywhere ? num_columns : std::ssize(rows[row]);
                for (int64_t i = 0; i < size; ++i) {
                    in.logits[row * num_columns + (everywhere ? i : i * 2 % num_columns)] =
                        narrow<TypeParam>(rows[row][i % std::ssize(rows[row])]);
                }
            }
            const auto [maxima, exponentials, target_logits] = sums_of(in);
            Memory<float> cpu_maxima(in.size.num_rows, true), cpu_sums = cpu_maxima, cpu_targets = cpu_maxima;
            Memory<TypeParam> cpu_gradient = in.logits;
            const auto& cpu = table().of<TypeParam>();
            cpu.softmax_sums({in.size.num_rows, num_columns, 0, in.logits.host(), in.targets.host(),
                              cpu_maxima.host(), cpu_sums.host(), cpu_targets.host()});
            cpu.cross_entropy_gradient({in.size.num_rows, num_columns, 0, in.targets.host(),
                                        cpu_maxima.host(), cpu_sums.host(), in.scale.host(),
                                        cpu_gradient.host()});
            EXPECT_EQ(kinds(maxima), kinds(cpu_maxima));
            EXPECT_EQ(kinds(exponentials), kinds(cpu_sums));
            EXPECT_EQ(kinds(target_logits), kinds(cpu_targets));
            EXPECT_EQ(kinds(gradient_of(in, cpu_maxima, cpu_sums)), kinds(cpu_gradient));
        }
    }
}

// A row without a target may hold any values.
TYPED_TEST(GpuCrossEntropy, RowsWithoutTargetBecomeZeros) {
    auto in = this->inputs({2, 100});
    in.targets[0] = -1, in.targets[1] = -100;
    for (int64_t i = 0; i < 200; ++i) in.logits[i] = narrow<TypeParam>(i % 2 == 0 ? NAN : INFINITY);
    const auto [maxima, exponentials, target_logits] = sums_of(in);
    const auto gradient = gradient_of(in, maxima, exponentials);
    for (int64_t i = 0; i < 200; ++i) EXPECT_EQ(gradient.at(i), 0);
    EXPECT_EQ(target_logits.at(0), 0);
}

TYPED_TEST(GpuCrossEntropy, NoRowsOrNoColumnsAreAllowed) {
    const auto& kernels = this->template gpu<TypeParam>();
    const Memory<int64_t> targets({5});
    const Memory<float> scale({kScale});
    Memory<float> sums({0, 1, 2});
    float *maximum = sums.gpu(), *sum = maximum + 1, *target = maximum + 2;
    kernels.softmax_sums({.num_rows = 0, .num_columns = 8}, nullptr);
    kernels.cross_entropy_gradient({.num_rows = 0, .num_columns = 8}, nullptr);
    kernels.cross_entropy({.num_rows = 0, .num_columns = 8}, nullptr);
    kernels.softmax_sums({1, 0, 0, nullptr, targets.gpu(), maximum, sum, target}, nullptr);
    kernels.cross_entropy_gradient({1, 0, 0, targets.gpu(), maximum, sum, scale.gpu(), nullptr}, nullptr);
    EXPECT_EQ(sums[0], -INFINITY);
    EXPECT_EQ(sums[1], 0);
    EXPECT_EQ(sums[2], 0);
}

}  // namespace
}  // namespace argosy::kernels

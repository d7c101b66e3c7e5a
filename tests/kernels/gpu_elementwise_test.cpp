// Gated linear units, RoPE and conversions on GPUs, against plain loops in fp64 and against the CPU's
// kernels.
#include <limits>
#include <numbers>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/gpu_test.h"

namespace argosy::kernels {
namespace {

constexpr double kSmallest = 0x1p-14;  // errors of smaller results are relative to it
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

template <class T>
class GpuElementwise : public GpuTest {};
using ElementTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(GpuElementwise, ElementTypes);

/// Gate and up side by side, with `gap` more elements before the next row.
struct GluCase {
    Activation activation;
    int64_t num_rows, row_size, gap = 0;
    bool aligned = true;
    int64_t stride() const { return 2 * row_size + gap; }
};
std::vector<GluCase> glu_cases() {
    std::vector<GluCase> all;
    for (const Activation each : {Activation::Silu, Activation::GeluTanh}) {
        all.insert(all.end(), {{each, 1, 1},
                               {each, 1, 4096},
                               {each, 3, 7},
                               {each, 5, 8},
                               {each, 4, 8, 8},
                               {each, 4, 8, 3},
                               {each, 3, 256, 16},
                               {each, 7, 255},
                               {each, 2, 40, 0, false},
                               {each, 11, 1000},
                               {each, 2, 4099, 1}});
    }
    return all;
}

struct Activated {
    double value, slope;
};
Activated activated(Activation activation, double gate) {
    if (activation == Activation::Silu) {
        const double open = sigmoid(gate);
        return {gate * open, open * (1 + gate * (1 - open))};
    }
    const double factor = std::sqrt(2 / std::numbers::pi),
                 u = factor * (gate + 0.044715 * gate * gate * gate);
    const double t = std::tanh(u), du = factor * (1 + 3 * 0.044715 * gate * gate);
    return {gate / 2 * (1 + t), (1 + t) / 2 + gate / 2 * (1 - t * t) * du};
}

TYPED_TEST(GpuElementwise, Glu) {
    using T = TypeParam;
    for (const GluCase& size : glu_cases()) {
        const auto both = this->template random<T>(size.num_rows * size.stride(), size.aligned, 4);
        const auto [y] = in_any_order([&] {
            Memory<T> result(size.num_rows * size.row_size, size.aligned);
            this->template gpu<T>().glu({size.activation, size.num_rows, size.row_size, both.gpu(),
                                         both.gpu() + size.row_size, size.stride(), result.gpu()},
                                        nullptr, nullptr);
            return std::tuple(result);
        });
        const auto expected = [&](int64_t i) {
            const int64_t at = i / size.row_size * size.stride() + i % size.row_size;
            return activated(size.activation, both.at(at)).value * both.at(at + size.row_size);
        };
        expect_near("y", y, expected, 2 * rounding<T>(), kSmallest);
    }
}

TYPED_TEST(GpuElementwise, GluBackward) {
    using T = TypeParam;
    for (const GluCase& size : glu_cases()) {
        if (size.gap > 0) continue;  // outputs have no gaps here, so no poison remains in them
        const int64_t hidden = size.row_size;
        const auto both = this->template random<T>(size.num_rows * size.stride(), size.aligned, 4);
        const auto dy = this->template random<T>(size.num_rows * hidden, size.aligned);
        const auto [dboth] = in_any_order([&] {
            Memory<T> result(both.size(), size.aligned);
            this->template gpu<T>().glu_backward(
                {size.activation, size.num_rows, hidden, dy.gpu(), both.gpu(), both.gpu() + hidden,
                 result.gpu(), result.gpu() + hidden, size.stride()},
                nullptr, nullptr);
            return std::tuple(result);
        });
        const auto expected = [&](int64_t i) {
            const int64_t row = i / size.stride(), column = i % size.stride(), j = column % hidden;
            const auto [value, slope] = activated(size.activation, both.at(row * size.stride() + j));
            const double up = both.at(row * size.stride() + hidden + j), upper = dy.at(row * hidden + j);
            return column < hidden ? slope * upper * up : value * upper;
        };
        expect_near("dgate and dup", dboth, expected, 2 * rounding<T>(), 1);
    }
}

// Weights of rows multiply y and its gradients; their own gradients are sums over rows.
TYPED_TEST(GpuElementwise, GluOfRowsWithWeights) {
    using T = TypeParam;
    for (const GluCase& size : glu_cases()) {
        SCOPED_TRACE(std::to_string(size.num_rows) + " x " + std::to_string(size.row_size));
        if (size.gap > 0) continue;
        const int64_t hidden = size.row_size;
        const auto both = this->template random<T>(size.num_rows * size.stride(), size.aligned, 4);
        const auto dy = this->template random<T>(size.num_rows * hidden, size.aligned);
        const auto weights = this->template random<float>(size.num_rows);
        const auto [y, dboth, dweights] = in_any_order([&] {
            Memory<T> result(size.num_rows * hidden, size.aligned), gradient(both.size(), size.aligned);
            Memory<float> of_weights(size.num_rows, true);
            const auto& gpu = this->template gpu<T>();
            gpu.glu({size.activation, size.num_rows, hidden, both.gpu(), both.gpu() + hidden, size.stride(),
                     result.gpu(), weights.gpu()},
                    nullptr, nullptr);
            gpu.glu_backward(
                {size.activation, size.num_rows, hidden, dy.gpu(), both.gpu(), both.gpu() + hidden,
                 gradient.gpu(), gradient.gpu() + hidden, size.stride(), weights.gpu(), of_weights.gpu()},
                nullptr, nullptr);
            return std::tuple(result, gradient, of_weights);
        });
        const auto of_row = [&](int64_t row, int64_t j) {
            const auto [value, slope] = activated(size.activation, both.at(row * size.stride() + j));
            return std::tuple(value, slope, both.at(row * size.stride() + hidden + j),
                              dy.at(row * hidden + j));
        };
        const auto expected_y = [&](int64_t i) {
            const auto [value, slope, up, upper] = of_row(i / hidden, i % hidden);
            return value * up * weights.at(i / hidden);
        };
        const auto expected_dboth = [&](int64_t i) {
            const int64_t row = i / size.stride(), column = i % size.stride();
            const auto [value, slope, up, upper] = of_row(row, column % hidden);
            return (column < hidden ? slope * up : value) * upper * weights.at(row);
        };
        const auto expected_dweight = [&](int64_t row) {
            double sum = 0;
            for (int64_t j = 0; j < hidden; ++j) {
                const auto [value, slope, up, upper] = of_row(row, j);
                sum += value * up * upper;
            }
            return sum;
        };
        expect_near("y", y, expected_y, 2 * rounding<T>(), kSmallest);
        expect_near("dgate and dup", dboth, expected_dboth, 2 * rounding<T>(), 1);
        expect_near("dweights", dweights, expected_dweight, 1e-5, std::sqrt(static_cast<double>(hidden)));
    }
}

// The results are those without `largest`, and NaN is larger than all others.
TYPED_TEST(GpuElementwise, GluFindsTheLargestMagnitudeOfItsResult) {
    using T = TypeParam;
    for (const GluCase& size : glu_cases()) {
        SCOPED_TRACE(std::to_string(size.num_rows) + " x " + std::to_string(size.row_size));
        const int64_t hidden = size.row_size;
        for (const bool has_nan : {false, true}) {
            auto both = this->template random<T>(size.num_rows * size.stride(), size.aligned, 4);
            const auto dy = this->template random<T>(size.num_rows * hidden, size.aligned);
            if (has_nan) both[(size.num_rows - 1) * size.stride() + hidden / 2] = narrow<T>(kNaN);
            const auto run = [&](float* of_y, float* of_dboth) {
                Memory<T> y(size.num_rows * hidden, size.aligned), dboth = both;
                const T* const gate = std::as_const(both).gpu();
                const auto& gpu = this->template gpu<T>();
                gpu.glu({size.activation, size.num_rows, hidden, gate, gate + hidden, size.stride(), y.gpu()},
                        nullptr, of_y);
                for (int64_t i = 0; i < dboth.size(); ++i) dboth[i] = narrow<T>(0);  // gaps too
                gpu.glu_backward({size.activation, size.num_rows, hidden, dy.gpu(), gate, gate + hidden,
                                  dboth.gpu(), dboth.gpu() + hidden, size.stride()},
                                 nullptr, of_dboth);
                return std::tuple(y, dboth);
            };
            const auto [right_y, right_dboth] = run(nullptr, nullptr);
            const auto [y, of_y, dboth, of_dboth] = in_any_order([&] {
                Memory<float> largest_y({0.0F}), largest_dboth({0.0F});
                const auto results = run(largest_y.gpu(), largest_dboth.gpu());
                return std::tuple(std::get<0>(results), largest_y, std::get<1>(results), largest_dboth);
            });
            EXPECT_TRUE(same_numbers(y, right_y) && same_numbers(dboth, right_dboth));
            EXPECT_TRUE(of_y.same_bits(this->largest_of(y))) << of_y.at(0);
            EXPECT_TRUE(of_dboth.same_bits(this->largest_of(dboth))) << of_dboth.at(0);
            EXPECT_EQ(std::isnan(of_y.at(0)), has_nan);
            EXPECT_EQ(std::isnan(of_dboth.at(0)), has_nan);
        }
    }
}

// Gates whose exponential overflows or underflows, and gates that are NaN.
TYPED_TEST(GpuElementwise, GluAtItsLimits) {
    using T = TypeParam;
    const double limits[] = {0.0,   -0.0, 1e-30, 20,    -20,    88,        -88,        89,
                             -89.5, 300,  -300,  6.5e4, -6.5e4, kInfinity, -kInfinity, kNaN};
    Memory<T> gate(16, true), one(16, true), y = one, dgate = one, dup = one;
    for (int i = 0; i < 16; ++i) gate[i] = narrow<T>(limits[i]), one[i] = narrow<T>(1);
    Memory<T> right_y = y, right_dgate = y, right_dup = y;
    for (const Activation activation : {Activation::Silu, Activation::GeluTanh}) {
        const auto& gpu = this->template gpu<T>();
        gpu.glu({activation, 1, 16, gate.gpu(), one.gpu(), 16, y.gpu()}, nullptr, nullptr);
        gpu.glu_backward({activation, 1, 16, one.gpu(), gate.gpu(), one.gpu(), dgate.gpu(), dup.gpu(), 16},
                         nullptr, nullptr);
        table().of<T>().glu({activation, 1, 16, gate.host(), one.host(), 16, right_y.host()});
        table().of<T>().glu_backward({activation, 1, 16, one.host(), gate.host(), one.host(),
                                      right_dgate.host(), right_dup.host(), 16});
        EXPECT_EQ(kinds(y), kinds(right_y));
        EXPECT_EQ(kinds(dgate), kinds(right_dgate));
        EXPECT_EQ(kinds(dup), kinds(right_dup));
        for (int i = 0; i < 13; ++i) {
            EXPECT_NEAR(y.at(i), activated(activation, gate.at(i)).value,
                        2 * rounding<T>() * std::abs(gate.at(i)))
                << i;
        }
    }
}

// Every value of the narrow types; for float, values between those of bf16.
TYPED_TEST(GpuElementwise, ConversionsEqualTheCpus) {
    using T = TypeParam;
    constexpr int64_t kAll = 1 << 16;
    for (const int64_t size : {kAll, kAll - 1, int64_t{5}}) {
        for (const bool aligned : {true, false}) {
            Memory<T> from(size, aligned), narrowed = from, right_narrowed = from;
            Memory<float> widened(size, true), right_widened = widened, floats(size, aligned);
            for (int64_t i = 0; i < size; ++i) {
                const auto bits = static_cast<uint16_t>(i);
                if constexpr (std::is_same_v<T, float>) from[i] = std::bit_cast<float>(uint32_t{bits} << 16);
                if constexpr (!std::is_same_v<T, float>) from[i] = {bits};
                const auto noise = static_cast<uint32_t>(this->engine_());
                floats[i] = std::bit_cast<float>(uint32_t{bits} << 16 | (i % 3 == 0 ? 0x8000 : noise >> 16));
            }
            this->template gpu<T>().widen({size, from.gpu(), widened.gpu()}, nullptr);
            this->template gpu<T>().narrow({size, floats.gpu(), narrowed.gpu()}, nullptr);
            table().of<T>().widen({size, from.host(), right_widened.host()});
            table().of<T>().narrow({size, floats.host(), right_narrowed.host()});
            const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
            for (int64_t i = 0; i < size; ++i) {
                ASSERT_TRUE(same(widened.at(i), right_widened.at(i))) << i;
                ASSERT_TRUE(same(narrowed.at(i), right_narrowed.at(i))) << i << ": " << floats[i];
            }
        }
    }
}

struct RopeCase {
    int64_t num_rows, num_heads, half, first_row, seq_len;
    bool aligned = true;
    int64_t gap = 0;  // elements between the rows of x
    bool positions = false;
    int64_t num_unrotated = 0;
};

TYPED_TEST(GpuElementwise, Rope) {
    using T = TypeParam;
    for (const RopeCase& size : {RopeCase{1, 1, 1, 0, 1},
                                 {5, 3, 32, 2, 7},
                                 {9, 14, 32, 0, 9},
                                 {40, 2, 64, 30, 64},
                                 {7, 9, 5, 1, 3},
                                 {7, 4, 64, 0, 4, false},
                                 {3, 1, 12, 5, 8},
                                 {6, 3, 32, 1, 5, true, 64},
                                 {6, 3, 32, 1, 5, true, 3},
                                 {20, 3, 32, 1, 9, true, 0, true},
                                 {7, 6, 48, 1, 5, true, 0, false, 32},
                                 {5, 2, 16, 1, 5, true, 8, false, 96},
                                 {5, 5, 3, 1, 5, true, 0, false, 11}}) {
        const int64_t head_size = 2 * size.half + size.num_unrotated;
        const int64_t row_size = size.num_heads * head_size, stride = row_size + size.gap;
        const int64_t count = size.num_rows * row_size;
        const auto x = this->template random<T>(size.num_rows * stride, size.aligned);
        const auto cos = this->template random<float>(size.seq_len * size.half);
        const auto sin = this->template random<float>(size.seq_len * size.half);
        const auto position = [&](int64_t row) {
            return size.positions ? row * row % size.seq_len : (size.first_row + row) % size.seq_len;
        };
        std::vector<int64_t> all;
        for (int64_t row = 0; row < size.num_rows; ++row) all.push_back(position(row));
        const Memory<int64_t> positions(all);
        for (const Rotation rotation : {Rotation::Forward, Rotation::Backward}) {
            const auto run = [&](const T* from, T* to, int64_t to_stride) {
                this->template gpu<T>().rope(
                    {size.num_rows, size.num_heads, size.half, size.first_row, size.seq_len, rotation,
                     cos.gpu(), sin.gpu(), from, stride, to, to_stride,
                     size.positions ? positions.gpu() : nullptr, size.num_unrotated},
                    nullptr);
            };
            const auto [y, in_place] = in_any_order([&] {
                Memory<T> result(count, size.aligned), rotated = x;
                run(x.gpu(), result.gpu(), row_size);
                run(rotated.gpu(), rotated.gpu(), stride);
                return std::tuple(result, rotated);
            });
            for (int64_t i = 0; i < x.size(); ++i) {
                const int64_t row = i / stride, column = i % stride;
                const double right = column < row_size ? y.at(row * row_size + column) : x.at(i);
                ASSERT_EQ(in_place.at(i), right) << i;
            }
            const auto expected = [&](int64_t i) {
                const int64_t row = i / row_size, head = i % row_size / head_size, place = i % head_size;
                const int64_t begin_of_head = row * stride + head * head_size;
                if (place >= 2 * size.half) return double{x.at(begin_of_head + place)};
                const int64_t pair = place % size.half, begin = begin_of_head + pair;
                const int64_t angle = position(row) * size.half + pair;
                const double first = x.at(begin), second = x.at(begin + size.half);
                const double s = sin.at(angle) * (rotation == Rotation::Forward ? 1 : -1);
                return place < size.half ? first * cos.at(angle) - second * s
                                         : second * cos.at(angle) + first * s;
            };
            expect_near("y", y, expected, rounding<T>(), 1);
        }
    }
}

}  // namespace
}  // namespace argosy::kernels

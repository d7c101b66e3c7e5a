// SwiGLU, RoPE and conversions on GPUs against plain loops in fp64 and the processor's kernels.
#include <limits>
#include <tuple>

#include "kernels/gpu_test.h"

namespace argosy::kernels {
namespace {

constexpr double kSmallestHalf = 0x1p-14;  // with all its bits
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kSizes[] = {1, 3, 7, 8, 9, 255, 256, 4095, 4096, 4099, 10000};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

template <class T>
class GpuElementwise : public GpuTest {};
using ElementTypes = ::testing::Types<float, BFloat16, Half>;
TYPED_TEST_SUITE(GpuElementwise, ElementTypes);

TYPED_TEST(GpuElementwise, Swiglu) {
    using T = TypeParam;
    for (const int64_t size : kSizes) {
        for (const bool aligned : {true, false}) {
            const auto gate = this->template random<T>(size, aligned, 4),
                       up = this->template random<T>(size, true);
            const auto [y] = in_any_order([&] {
                Memory<T> result(size, aligned);
                this->template gpu<T>().swiglu({size, gate.data(), up.data(), result.data()}, nullptr);
                return std::tuple(result);
            });
            expect_near(
                "y", y, [&](int64_t i) { return gate.at(i) * sigmoid(gate.at(i)) * up.at(i); },
                2 * rounding<T>(), kSmallestHalf);
        }
    }
}

TYPED_TEST(GpuElementwise, SwigluBackward) {
    using T = TypeParam;
    for (const int64_t size : kSizes) {
        for (const bool aligned : {true, false}) {
            const auto gate = this->template random<T>(size, true, 4),
                       up = this->template random<T>(size, aligned);
            const auto dy = this->template random<T>(size, aligned);
            const auto [dgate, dup] = in_any_order([&] {
                Memory<T> first(size, aligned), second(size, true);
                this->template gpu<T>().swiglu_backward(
                    {size, dy.data(), gate.data(), up.data(), first.data(), second.data()}, nullptr);
                return std::tuple(first, second);
            });
            const auto slope = [&](int64_t i) {
                const double open = sigmoid(gate.at(i));
                return open * (1 + gate.at(i) * (1 - open));
            };
            expect_near(
                "dgate", dgate, [&](int64_t i) { return slope(i) * dy.at(i) * up.at(i); }, 2 * rounding<T>(),
                1);
            expect_near(
                "dup", dup, [&](int64_t i) { return gate.at(i) * sigmoid(gate.at(i)) * dy.at(i); },
                2 * rounding<T>(), kSmallestHalf);
        }
    }
}

// Gates whose exponential overflows, is lost, or is no number.
TYPED_TEST(GpuElementwise, SwigluAtItsLimits) {
    using T = TypeParam;
    const double limits[] = {0.0,   -0.0, 1e-30, 20,    -20,    88,        -88,        89,
                             -89.5, 300,  -300,  6.5e4, -6.5e4, kInfinity, -kInfinity, kNaN};
    Memory<T> gate(16, true), one(16, true), y = one, dgate = one, dup = one;
    for (int i = 0; i < 16; ++i) gate[i] = narrow<T>(limits[i]), one[i] = narrow<T>(1);
    Memory<T> right_y = y, right_dgate = y, right_dup = y;
    const auto& gpu = this->template gpu<T>();
    gpu.swiglu({16, gate.data(), one.data(), y.data()}, nullptr);
    gpu.swiglu_backward({16, one.data(), gate.data(), one.data(), dgate.data(), dup.data()}, nullptr);
    table().of<T>().swiglu({16, gate.data(), one.data(), right_y.data()});
    table().of<T>().swiglu_backward(
        {16, one.data(), gate.data(), one.data(), right_dgate.data(), right_dup.data()});
    EXPECT_EQ(kinds(y), kinds(right_y));
    EXPECT_EQ(kinds(dgate), kinds(right_dgate));
    EXPECT_EQ(kinds(dup), kinds(right_dup));
    for (int i = 0; i < 13; ++i) {
        EXPECT_NEAR(y.at(i), gate.at(i) * sigmoid(gate.at(i)), 2 * rounding<T>() * std::abs(gate.at(i))) << i;
    }
}

// Every value of the narrow types; of float, values between those of bf16.
TYPED_TEST(GpuElementwise, ConversionsAreTheProcessors) {
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
            this->template gpu<T>().widen({size, from.data(), widened.data()}, nullptr);
            this->template gpu<T>().narrow({size, floats.data(), narrowed.data()}, nullptr);
            table().of<T>().widen({size, from.data(), right_widened.data()});
            table().of<T>().narrow({size, floats.data(), right_narrowed.data()});
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
};

TYPED_TEST(GpuElementwise, Rope) {
    using T = TypeParam;
    for (const RopeCase& size : {RopeCase{1, 1, 1, 0, 1},
                                 {5, 3, 32, 2, 7},
                                 {9, 14, 32, 0, 9},
                                 {40, 2, 64, 30, 64},
                                 {7, 9, 5, 1, 3},
                                 {7, 4, 64, 0, 4, false},
                                 {3, 1, 12, 5, 8}}) {
        const int64_t count = size.num_rows * size.num_heads * 2 * size.half;
        const auto x = this->template random<T>(count, size.aligned);
        const auto cos = this->template random<float>(size.seq_len * size.half);
        const auto sin = this->template random<float>(size.seq_len * size.half);
        for (const Turn turn : {Turn::Forward, Turn::Back}) {
            const auto run = [&](const T* from, T* to) {
                this->template gpu<T>().rope({size.num_rows, size.num_heads, size.half, size.first_row,
                                              size.seq_len, turn, cos.data(), sin.data(), from, to},
                                             nullptr);
            };
            const auto [y, in_place] = in_any_order([&] {
                Memory<T> result(count, size.aligned), turned = x;
                run(x.data(), result.data());
                run(turned.data(), turned.data());
                return std::tuple(result, turned);
            });
            EXPECT_TRUE(y.same_bits(in_place));
            const auto expected = [&](int64_t i) {
                const int64_t head = i / (2 * size.half), pair = i % size.half, row = head / size.num_heads;
                const int64_t angle = (size.first_row + row) % size.seq_len * size.half + pair;
                const double first = x.at(head * 2 * size.half + pair);
                const double second = x.at(head * 2 * size.half + size.half + pair);
                const double s = sin.at(angle) * (turn == Turn::Forward ? 1 : -1);
                return i % (2 * size.half) < size.half ? first * cos.at(angle) - second * s
                                                       : second * cos.at(angle) + first * s;
            };
            expect_near("y", y, expected, rounding<T>(), 1);
        }
    }
}

}  // namespace
}  // namespace argosy::kernels

// Shared parts of the tests of GPU kernels: random inputs, comparisons, and runs of each kernel in several
// orders of threads and blocks, which must not change a bit (on a GPU, several runs).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>

#include "kernels/gpu_memory.h"
#include "kernels/gpu_place.h"
#include "kernels/gpu_table.h"
#include "kernels/table.h"

namespace argosy::kernels {

/// Relative error bound of a result that is rounded once.
template <class T>
double rounding() {
    return std::is_same_v<T, float> ? 1e-6 : 1.0 / 256;
}

class GpuTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!has_gpu()) GTEST_SKIP() << "no GPU here";
    }
    void TearDown() override { reset_place(); }

    template <class T>
    Memory<T> random(int64_t size, bool aligned = true, double scale = 1) {
        std::normal_distribution<double> normal;
        Memory<T> numbers(size, aligned);
        for (int64_t i = 0; i < size; ++i) numbers[i] = narrow<T>(scale * normal(engine_));
        return numbers;
    }

    template <class T>
    static const GpuTypedKernels<T>& gpu() {
        return gpu_table()->of<T>();
    }

    /// What largest_magnitudes() finds in all of x.
    template <class T>
    static Memory<float> largest_of(const Memory<T>& x) {
        Memory<float> largest({0.0F});
        gpu<T>().largest_magnitudes({{x.gpu(), 1, x.size(), x.size(), 1, x.size()}, largest.gpu(), 1},
                                    nullptr);
        return largest;
    }

    std::mt19937 engine_{5};
};

/// Whether a number is finite, infinite (with its sign), or NaN.
template <class T>
std::string kinds(const Memory<T>& numbers) {
    std::string all;
    for (int64_t i = 0; i < numbers.size(); ++i) {
        const double x = numbers.at(i);
        all += std::isnan(x) ? 'n' : std::isfinite(x) ? '.' : x > 0 ? '+' : '-';
    }
    return all;
}

/// Whether all numbers are equal. All NaNs are: a product of two has the bits of either.
template <class T>
bool same_numbers(const Memory<T>& a, const Memory<T>& b) {
    for (int64_t i = 0; i < a.size(); ++i) {
        const double one = a.at(i), other = b.at(i);
        if (one != other && !(std::isnan(one) && std::isnan(other))) return false;
    }
    return a.size() == b.size();
}

/// Calls `run()`, which returns a tuple of memories, in several orders, and returns the result of the first
/// call.
template <class Run>
auto in_any_order(const Run& run) {
    set_order(Threads::Forwards, 0);
    auto first = run();
    for (const auto& [threads, seed] : {std::pair{Threads::Backwards, 3}, {Threads::Forwards, 8}}) {
        set_order(threads, seed);
        const auto again = run();
        const auto same = [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
            return (std::get<kIndex>(first).same_bits(std::get<kIndex>(again)) && ...);
        };
        EXPECT_TRUE(same(std::make_index_sequence<std::tuple_size_v<decltype(first)>>()))
            << "results depend on the order of threads or blocks";
    }
    return first;
}

/// Every element is within the tolerance of expected(i), relative to its size, or to `scale` if that is
/// larger.
template <class T, class Expected>
void expect_near(const char* name, const Memory<T>& found, const Expected& expected, double tolerance,
                 double scale = 0) {
    EXPECT_EQ(found.faults(), 0) << name << ": elements that nobody wrote, or written outside";
    double worst = 0;
    int64_t where = 0;
    for (int64_t i = 0; i < found.size(); ++i) {
        const double right = expected(i), error = std::abs(found.at(i) - right);
        const double relative = error / std::max({std::abs(right), scale, 1e-30});
        if (!(relative <= worst)) worst = relative, where = i;
    }
    EXPECT_LE(worst, tolerance) << name << ": element " << where << " is " << found.at(where) << ", not "
                                << expected(where);
}

}  // namespace argosy::kernels

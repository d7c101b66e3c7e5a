// Shared parts of the tests of GPU kernels: memory with watched ends and poisoned outputs, and runs of each
// kernel in several orders of threads and blocks, which must not change a bit (on a GPU, several runs).
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/gpu_place.h"
#include "kernels/gpu_table.h"
#include "kernels/table.h"

namespace argosy::kernels {

/// A NaN that no arithmetic produces; it marks elements that nobody wrote.
template <class T>
T poison();
template <>
inline float poison() {
    return std::bit_cast<float>(0x7fa5a5a5);
}
template <>
inline BFloat16 poison() {
    return {0x7fa5};
}
template <>
inline Half poison() {
    return {0x7da5};
}

template <class T>
double wide(T x) {
    float result;
    table().of<T>().widen({1, &x, &result});
    return result;
}
template <class T>
T narrow(double x) {
    const auto single = static_cast<float>(x);
    T result;
    table().of<T>().narrow({1, &single, &result});
    return result;
}

/// Relative error bound of a result that is rounded once.
template <class T>
double rounding() {
    if constexpr (std::is_same_v<T, float>) return 1e-6;
    return std::is_same_v<T, BFloat16> ? 1.0 / 256 : 1.0 / 2048;
}

/// Elements as a kernel gets them: `data()` is aligned to 16 bytes, or one element past that.
template <class T>
class Memory {
  public:
    Memory(int64_t size, bool aligned)
        : begin_(kGuard + (aligned ? 0 : 1)), size_(size), all_(size + 2 * kGuard + 1, poison<T>()) {}

    T* data() { return all_.data() + begin_; }
    const T* data() const { return all_.data() + begin_; }
    int64_t size() const { return size_; }
    T& operator[](int64_t i) { return data()[i]; }
    double at(int64_t i) const { return wide(data()[i]); }

    /// Counts bytes outside that were written, and elements inside that were not.
    int64_t faults() const {
        const T poisoned = poison<T>();
        int64_t count = 0;
        for (int64_t i = 0; i < std::ssize(all_); ++i) {
            const bool inside = i >= begin_ && i < begin_ + size_;
            const bool is_poison = std::memcmp(&all_[i], &poisoned, sizeof(T)) == 0;
            if (inside == is_poison) ++count;
        }
        return count;
    }
    bool same_bits(const Memory& other) const {
        return std::memcmp(all_.data(), other.all_.data(), all_.size() * sizeof(T)) == 0;
    }

  private:
    static constexpr int64_t kGuard = 16;
    int64_t begin_, size_;
    Visible<T> all_;
};

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

// Norms of many tensors on GPUs against plain sums in higher precision, and against the CPU's kernel.
#include "kernels/gpu_test.h"

namespace argosy::kernels {
namespace {

constexpr double kPoison = -1;  // not a valid norm

/// Computed with a mantissa of 64 bits.
double squared_norm(const SquaredNorm& tensor) {
    long double sum = 0;
    for (int64_t i = 0; i < tensor.count; ++i) sum += static_cast<long double>(tensor.x[i]) * tensor.x[i];
    return static_cast<double>(sum);
}

class GpuSquaredNorms : public GpuTest {
  protected:
    static Visible<double> norms_of(const std::vector<SquaredNorm>& tensors) {
        const int64_t bytes = gpu_table()->squared_norms_scratch_bytes(tensors);
        Visible<double> norms(tensors.size() + 1, kPoison), scratch(bytes / sizeof(double) + 1, kPoison);
        gpu_table()->squared_norms(tensors, norms.data(), scratch.data(), nullptr);
        EXPECT_EQ(norms.back(), kPoison);
        EXPECT_EQ(scratch.back(), kPoison);
        norms.pop_back();
        return norms;
    }
};

TEST_F(GpuSquaredNorms, MatchPlainSums) {
    std::vector<Memory<float>> memories;
    for (const int64_t count : {0, 1, 3, 4, 5, 1023, 1024, 4096, 32767, 32768, 32769, 70000, 200001}) {
        for (const bool aligned : {true, false}) memories.push_back(random<float>(count, aligned, 1e-3));
    }
    std::vector<SquaredNorm> tensors;
    for (const auto& memory : memories) tensors.push_back({memory.size(), memory.data()});
    const auto norms = norms_of(tensors);
    for (size_t i = 0; i < tensors.size(); ++i) {
        const double right = squared_norm(tensors[i]);
        EXPECT_NEAR(norms[i], right, 1e-15 * right) << tensors[i].count;
        EXPECT_NEAR(norms[i], table().squared_norm(tensors[i]), 3e-14 * right) << tensors[i].count;
    }
    for (const uint64_t seed : {3, 4}) {
        set_order(Threads::Backwards, seed);
        EXPECT_EQ(norms_of(tensors), norms);
    }
}

// Integers of seven bits, beside numbers in fp32.
TEST_F(GpuSquaredNorms, OfBFloat16) {
    const auto other = random<float>(1000);
    for (const int64_t count : {0, 1, 7, 8, 9, 1000, 8191, 33000, 98305}) {
        for (const bool aligned : {true, false}) {
            Memory<BFloat16> x(count, aligned);
            double right = 0;
            for (int64_t i = 0; i < count; ++i) {
                const double value = static_cast<int>(engine_() % 255) - 127;
                x[i] = narrow<BFloat16>(value);
                right += value * value;
            }
            const auto norms = norms_of({{count, nullptr, x.data()}, {other.size(), other.data()}});
            EXPECT_EQ(norms[0], right) << count;
            EXPECT_EQ(norms[1], norms_of({{other.size(), other.data()}})[0]);
        }
    }
}

// Sums of integers below 2^53 are exact in any order.
TEST_F(GpuSquaredNorms, AreExactIfSumsAre) {
    for (const int64_t count : {1000, 33000, 98305}) {
        Memory<float> x(count, true);
        double right = 0;
        for (int64_t i = 0; i < count; ++i) {
            x[i] = static_cast<float>(static_cast<int>(engine_() % 4001) - 2000);
            right += double{x[i]} * double{x[i]};
        }
        EXPECT_EQ(norms_of({{count, x.data()}})[0], right);
    }
}

// Data shifted by one element in memory gives the same bits.
TEST_F(GpuSquaredNorms, DoNotDependOnAlignment) {
    const auto aligned = random<float>(50003);
    Memory<float> other(aligned.size(), false);
    for (int64_t i = 0; i < other.size(); ++i) other[i] = aligned.data()[i];
    const auto norms = norms_of({{aligned.size(), aligned.data()}, {other.size(), other.data()}});
    EXPECT_EQ(norms[0], norms[1]);
}

TEST_F(GpuSquaredNorms, ListsLongerThanALaunch) {
    const auto x = random<float>(2000);
    std::vector<SquaredNorm> tensors;
    for (int64_t i = 0; i < 1000; ++i) tensors.push_back({i % 11 * 3, x.data() + i});
    tensors[700].count = 0;
    const auto norms = norms_of(tensors);
    for (size_t i = 0; i < tensors.size(); ++i) {
        const double right = squared_norm(tensors[i]);
        EXPECT_NEAR(norms[i], right, 1e-15 * right) << i;
    }
}

TEST_F(GpuSquaredNorms, LargeAndNonfiniteNumbers) {
    auto x = random<float>(100);
    x[70] = 3.4e38F;
    EXPECT_NEAR(norms_of({{100, x.data()}})[0], double{x[70]} * double{x[70]}, 1e62);
    x[99] = INFINITY;
    EXPECT_EQ(norms_of({{100, x.data()}})[0], INFINITY);
    x[3] = NAN;
    EXPECT_TRUE(std::isnan(norms_of({{100, x.data()}})[0]));
    EXPECT_TRUE(norms_of({}).empty());
}

}  // namespace
}  // namespace argosy::kernels

// Norms of many tensors on GPUs against plain sums in higher precision, and against the CPU's kernel.
#include "kernels/gpu_test.h"

namespace argosy::kernels {
namespace {

/// Computed with a mantissa of 64 bits.
double squared_norm(const SquaredNorm& tensor) {
    long double sum = 0;
    for (int64_t i = 0; i < tensor.count; ++i) sum += static_cast<long double>(tensor.x[i]) * tensor.x[i];
    return static_cast<double>(sum);
}

class GpuSquaredNorms : public GpuTest {
  protected:
    /// The kernel's results for tensors in the GPU's memory.
    static std::vector<double> norms_of(const std::vector<SquaredNorm>& tensors) {
        const int64_t bytes = gpu_table()->squared_norms_scratch_bytes(tensors);
        Memory<double> norms(std::ssize(tensors), true), scratch(bytes / int64_t{sizeof(double)}, true);
        gpu_table()->squared_norms(tensors, norms.gpu(), scratch.gpu(), nullptr);
        EXPECT_EQ(norms.faults(), 0);
        EXPECT_EQ(scratch.faults(), 0);
        return {norms.host(), norms.host() + norms.size()};
    }
    static SquaredNorm on(Side side, const Memory<float>& x) { return {x.size(), x.on(side)}; }
};

TEST_F(GpuSquaredNorms, MatchPlainSums) {
    std::vector<Memory<float>> memories;
    for (const int64_t count : {0, 1, 3, 4, 5, 1023, 1024, 4096, 32767, 32768, 32769, 70000, 200001}) {
        for (const bool aligned : {true, false}) memories.push_back(random<float>(count, aligned, 1e-3));
    }
    std::vector<SquaredNorm> tensors;
    for (const auto& memory : memories) tensors.push_back(on(Side::Gpu, memory));
    const auto norms = norms_of(tensors);
    for (size_t i = 0; i < memories.size(); ++i) {
        const SquaredNorm tensor = on(Side::Processor, memories[i]);
        const double right = squared_norm(tensor);
        EXPECT_NEAR(norms[i], right, 1e-15 * right) << tensor.count;
        EXPECT_NEAR(norms[i], table().squared_norm(tensor), 3e-14 * right) << tensor.count;
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
            const auto norms = norms_of({{count, nullptr, x.gpu()}, on(Side::Gpu, other)});
            EXPECT_EQ(norms[0], right) << count;
            EXPECT_EQ(norms[1], norms_of({on(Side::Gpu, other)})[0]);
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
        EXPECT_EQ(norms_of({on(Side::Gpu, x)})[0], right);
    }
}

// Data shifted by one element in memory gives the same bits.
TEST_F(GpuSquaredNorms, DoNotDependOnAlignment) {
    const auto aligned = random<float>(50003);
    Memory<float> other(aligned.size(), false);
    for (int64_t i = 0; i < other.size(); ++i) other[i] = aligned[i];
    const auto norms = norms_of({on(Side::Gpu, aligned), on(Side::Gpu, other)});
    EXPECT_EQ(norms[0], norms[1]);
}

TEST_F(GpuSquaredNorms, ListsLongerThanALaunch) {
    const auto x = random<float>(2000);
    std::vector<SquaredNorm> tensors;
    for (int64_t i = 0; i < 1000; ++i) tensors.push_back({i % 11 * 3, x.gpu() + i});
    tensors[700].count = 0;
    const auto norms = norms_of(tensors);
    for (size_t i = 0; i < tensors.size(); ++i) {
        const double right = squared_norm({tensors[i].count, x.host() + i});
        EXPECT_NEAR(norms[i], right, 1e-15 * right) << i;
    }
}

TEST_F(GpuSquaredNorms, LargeAndNonfiniteNumbers) {
    auto x = random<float>(100);
    x[70] = 3.4e38F;
    EXPECT_NEAR(norms_of({on(Side::Gpu, x)})[0], double{x[70]} * double{x[70]}, 1e62);
    x[99] = INFINITY;
    EXPECT_EQ(norms_of({on(Side::Gpu, x)})[0], INFINITY);
    x[3] = NAN;
    EXPECT_TRUE(std::isnan(norms_of({on(Side::Gpu, x)})[0]));
    EXPECT_TRUE(norms_of({}).empty());
}

}  // namespace
}  // namespace argosy::kernels

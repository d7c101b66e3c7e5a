// The memory of the tests themselves: writes of a side reach the other, and what no kernel wrote is found.
#include "kernels/gpu_test.h"

namespace argosy::kernels {
namespace {

class GpuMemory : public GpuTest {
  protected:
    /// A conversion of floats to floats is a copy.
    static void copy_on_gpu(int64_t count, const float* from, float* to) {
        gpu_table()->of<float>().widen({count, from, to}, nullptr);
    }
};

TEST_F(GpuMemory, EachSideGetsTheOthersWrites) {
    for (const bool aligned : {true, false}) {
        auto x = random<float>(40, aligned);
        Memory<float> y(40, aligned);
        copy_on_gpu(40, x.gpu(), y.gpu());
        EXPECT_TRUE(y.same_bits(x));
        x[3] = 7;
        copy_on_gpu(10, x.gpu(), y.gpu());
        EXPECT_EQ(y.at(3), 7);
        y[5] = 9;  // beside what the kernel wrote
        const Memory<float> again = y;
        Memory<float> z(40, aligned);
        copy_on_gpu(40, again.gpu(), z.gpu());
        EXPECT_EQ(z.at(3), 7);
        EXPECT_EQ(z.at(5), 9);
        EXPECT_EQ(z.at(39), x.at(39));
        EXPECT_EQ(z.faults(), 0);
    }
}

TEST_F(GpuMemory, ResultsOfAKernelAreInputsOfTheNext) {
    const auto x = random<float>(40);
    Memory<float> y(40, true), z = y, of_copy = y;
    copy_on_gpu(40, x.gpu(), y.gpu());
    const Memory<float> copy = y;
    copy_on_gpu(40, y.gpu(), z.gpu());
    copy_on_gpu(40, copy.gpu(), of_copy.gpu());
    EXPECT_TRUE(z.same_bits(x));
    EXPECT_TRUE(of_copy.same_bits(x));
}

TEST_F(GpuMemory, FindsWhatNoKernelWroteOrWhatOneWroteOutside) {
    if (!marks_unwritten_memory()) GTEST_SKIP() << "without marks, initcheck finds it";
    const auto x = random<float>(40);
    Memory<float> less(40, true), shifted(40, true);
    copy_on_gpu(30, x.gpu(), less.gpu());
    copy_on_gpu(40, x.gpu(), shifted.gpu() + 1);
    EXPECT_EQ(less.faults(), 10);
    EXPECT_EQ(less.faults_outside(), 0);
    EXPECT_EQ(shifted.faults(), 2);
    EXPECT_EQ(shifted.faults_outside(), 1);
}

}  // namespace
}  // namespace argosy::kernels

// Sums over rows on GPUs against plain loops in fp64.
#include <tuple>

#include "kernels/gpu_test.h"

namespace argosy::kernels {
namespace {

struct Case {
    int64_t num_rows, row_size, row_stride;
    bool aligned = true;
};

template <class T>
class GpuSums : public GpuTest {
  protected:
    /// Sums whose elements start at 1.
    static auto sum_rows(const Case& size, const Memory<T>& x) {
        Memory<float> sums(size.row_size, size.aligned);
        for (int64_t i = 0; i < size.row_size; ++i) sums[i] = 1;
        const SumRows<T> args = {size.num_rows, size.row_size, size.row_stride, x.gpu(), sums.gpu()};
        const int64_t bytes = gpu<T>().sum_rows_scratch_bytes(args);
        Memory<float> scratch(bytes / int64_t{sizeof(float)}, true);
        gpu<T>().sum_rows(args, scratch.gpu(), nullptr);
        EXPECT_EQ(scratch.faults(), 0) << "partial sums that nobody wrote, or outside";
        return std::tuple(sums);
    }
};
using ElementTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(GpuSums, ElementTypes);

TYPED_TEST(GpuSums, MatchPlainLoops) {
    for (const Case& size : {Case{1, 1, 1},
                             {1, 896, 896},
                             {63, 7, 7},
                             {64, 256, 256},
                             {65, 264, 264},
                             {700, 128, 128},
                             {1000, 40, 56},
                             {1000, 40, 41},
                             {300, 1000, 1000},
                             {130, 2048, 2048},
                             {500, 33, 33, false}}) {
        SCOPED_TRACE(std::to_string(size.num_rows) + " x " + std::to_string(size.row_size));
        const auto x = this->template random<TypeParam>(size.num_rows * size.row_stride, size.aligned);
        const auto [sums] = in_any_order([&] { return this->sum_rows(size, x); });
        std::vector<double> right(size.row_size, 1);
        for (int64_t row = 0; row < size.num_rows; ++row) {
            for (int64_t i = 0; i < size.row_size; ++i) right[i] += x.at(row * size.row_stride + i);
        }
        expect_near(
            "sums", sums, [&](int64_t i) { return right[i]; }, 1e-6,
            std::sqrt(static_cast<double>(size.num_rows)));
    }
}

TYPED_TEST(GpuSums, NoRowsLeaveTheSumsUnchanged) {
    float sums[2] = {3, 4};
    EXPECT_EQ(this->template gpu<TypeParam>().sum_rows_scratch_bytes({.num_rows = 0, .row_size = 2}), 0);
    this->template gpu<TypeParam>().sum_rows({0, 2, 2, nullptr, sums}, nullptr, nullptr);
    EXPECT_EQ(sums[0], 3);
}

}  // namespace
}  // namespace argosy::kernels

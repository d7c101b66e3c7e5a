// The bytes that kernels for GPUs read and write, counted by the emulator: inputs are read once, and outputs
// are written once.
#include "kernels/gpu_test.h"
#include "support/emulated_cuda.h"

namespace argosy::kernels {
namespace {

constexpr int64_t kElement = sizeof(BFloat16);

struct Traffic {
    int64_t loaded, stored;
};

template <class Run>
Traffic traffic_of(const Run& run) {
    auto& emulated = testing::emulated_cuda();
    const Traffic before = {emulated.bytes_loaded, emulated.bytes_stored};
    run();
    return {emulated.bytes_loaded - before.loaded, emulated.bytes_stored - before.stored};
}

class GpuTraffic : public GpuTest {
  protected:
    Traffic of_cross_entropy(int64_t num_rows, int64_t num_columns) {
        auto logits = random<BFloat16>(num_rows * num_columns);
        const Memory<int64_t> targets(std::vector<int64_t>(num_rows, 1));
        const Memory<float> scale({1.0F});
        Memory<float> maxima(num_rows, true), exponentials(num_rows, true), target_logits(num_rows, true);
        return traffic_of([&] {
            gpu<BFloat16>().cross_entropy({num_rows, num_columns, targets.gpu(), scale.gpu(), logits.gpu(),
                                           maxima.gpu(), exponentials.gpu(), target_logits.gpu()},
                                          nullptr);
        });
    }
};

TEST_F(GpuTraffic, CrossEntropyReadsARowOnceThatABlockKeeps) {
    testing::emulated_cuda().max_shared_bytes = 64 << 10;
    for (const int64_t num_columns : {8, 4096, 16384, 32000}) {  // two blocks on a multiprocessor, and one
        const auto [loaded, stored] = of_cross_entropy(3, num_columns);
        EXPECT_EQ(loaded, 3 * num_columns * kElement) << num_columns;
        EXPECT_EQ(stored, 3 * num_columns * kElement) << num_columns;
    }
}

TEST_F(GpuTraffic, CrossEntropyReadsAgainWhatABlockCannotKeep) {
    testing::emulated_cuda().max_shared_bytes = 64 << 10;
    const int64_t num_columns = 50000, num_kept = (64 << 10) / kElement;
    const auto [loaded, stored] = of_cross_entropy(2, num_columns);
    EXPECT_EQ(loaded, 2 * (2 * num_columns - num_kept) * kElement);
    EXPECT_EQ(stored, 2 * num_columns * kElement);
}

// With the largest magnitude of the result too.
TEST_F(GpuTraffic, GluReadsAndWritesOnce) {
    constexpr int64_t kRows = 5, kHidden = 1000, kBytes = kRows * kHidden * kElement;
    const auto gate_up = random<BFloat16>(2 * kRows * kHidden), dy = random<BFloat16>(kRows * kHidden);
    Memory<BFloat16> y(kRows * kHidden, true), dgate_up(2 * kRows * kHidden, true);
    Memory<float> largest({0.0F});
    const BFloat16 *gate = gate_up.gpu(), *up = gate + kRows * kHidden;
    for (float* const to : {static_cast<float*>(nullptr), largest.gpu()}) {
        const Traffic forward = traffic_of([&] {
            gpu<BFloat16>().glu({Activation::Silu, kRows, kHidden, gate, up, kHidden, y.gpu()}, nullptr, to);
        });
        EXPECT_EQ(forward.loaded, 2 * kBytes);
        EXPECT_EQ(forward.stored, kBytes);
        const Traffic backward = traffic_of([&] {
            gpu<BFloat16>().glu_backward({Activation::Silu, kRows, kHidden, dy.gpu(), gate, up,
                                          dgate_up.gpu(), dgate_up.gpu() + kRows * kHidden, kHidden},
                                         nullptr, to);
        });
        EXPECT_EQ(backward.loaded, 3 * kBytes);
        EXPECT_EQ(backward.stored, 2 * kBytes);
    }
}

TEST_F(GpuTraffic, TheLargestMagnitudeOfAMatrixReadsItOnceAndNoGaps) {
    constexpr int64_t kRows = 70, kColumns = 264;
    const auto x = random<BFloat16>(kRows * (kColumns + 8));
    for (const int64_t stride : {kColumns, kColumns + 8}) {
        Memory<float> largest({0.0F});
        const auto [loaded, stored] = traffic_of([&] {
            gpu<BFloat16>().largest_magnitudes(
                {{x.gpu(), kRows, kColumns, stride, kRows, kColumns}, largest.gpu(), 1}, nullptr);
        });
        EXPECT_EQ(loaded, kRows * kColumns * kElement) << stride;
        EXPECT_EQ(stored, 0);
    }
}

TEST_F(GpuTraffic, CastsReadOnceAndWriteEachResultOnce) {
    constexpr int64_t kRows = 136, kColumns = 264, kCount = kRows * kColumns;
    const auto x = random<BFloat16>(kCount);
    const Memory<float> factor({0.5F});
    Memory<uint8_t> values(kCount, true), transposed(kCount, true);
    const Grouped<BFloat16> matrix{x.gpu(), kRows, kColumns, kColumns, kRows, kColumns};
    const Traffic cast = traffic_of([&] {
        gpu<BFloat16>().cast_to_float8({matrix, factor.gpu(), 1, Float8Type::E4M3, values.gpu(), kColumns},
                                       {transposed.gpu(), kRows}, nullptr);
    });
    EXPECT_EQ(cast.loaded, kCount * kElement);
    EXPECT_EQ(cast.stored, 2 * kCount);
    // The last row is read number by number, which is not counted.
    Grouped<BFloat16> odd = matrix;
    odd.num_rows = odd.group_rows = kRows - 7;
    const Traffic in_packs = traffic_of([&] {
        gpu<BFloat16>().cast_to_float8({odd, factor.gpu(), 1, Float8Type::E4M3, values.gpu(), kColumns}, {},
                                       nullptr);
    });
    EXPECT_EQ(in_packs.loaded, (kRows - 8) * kColumns * kElement);
    EXPECT_EQ(in_packs.stored, (kRows - 8) * kColumns);
    const Traffic transposition = traffic_of([&] {
        gpu_table()->transpose_bytes({values.gpu(), kRows, kColumns, kColumns, {transposed.gpu(), kRows}},
                                     nullptr);
    });
    EXPECT_EQ(transposition.loaded, kCount);
    EXPECT_EQ(transposition.stored, kCount);
}

TEST_F(GpuTraffic, BlocksAndTheirScalesTakeOnePass) {
    constexpr int64_t kRows = 256, kColumns = 384, kCount = kRows * kColumns;
    const auto x = random<BFloat16>(kCount);
    Memory<uint8_t> values(kCount, true), exponents(kCount / 128, true);
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 128}, {128, 1}, {128, 128}}) {
        const Grouped<BFloat16> matrix{x.gpu(), kRows, kColumns, kColumns, rows, columns};
        const Traffic cast = traffic_of([&] {
            gpu<BFloat16>().cast_blocks(
                {matrix, true, exponents.gpu(), kColumns / columns, values.gpu(), kColumns}, {}, nullptr);
        });
        EXPECT_EQ(cast.loaded, kCount * kElement);
        EXPECT_EQ(cast.stored, kCount);
    }
}

}  // namespace
}  // namespace argosy::kernels

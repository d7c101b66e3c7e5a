// Sums in bf16 on GPUs have the bits of the scalar reference: for whole parameters and slabs, packs and
// single elements, the first term and later ones.
#include <limits>

#include "kernels/gpu_test.h"
#include "kernels/rounded_sum.h"

namespace argosy::kernels {
namespace {

struct Case {
    int64_t size;
    uint64_t first_element;
    int64_t row_length, row_stride;
    bool aligned = true;
};

constexpr int64_t kOneRow = int64_t{1} << 40;
/// Whole parameters; rows that begin where blocks of random bits begin; and rows that do not.
constexpr Case kCases[] = {{0, 0, 1, 1},
                           {1, 0, kOneRow, 0},
                           {8, 0, 8, 0},
                           {2100, 0, 2100, 7},
                           {8200, 1 << 20, 8200, 0},
                           {16384, 8, kOneRow, 1},
                           {600, 24, 40, 120},
                           {16424, 0, 8, 64},
                           {603, 3, kOneRow, 9},
                           {600, 16, 40, 61},
                           {8195, 7, 13, 52},
                           {500, 8, 20, 64},
                           {2048, 0, kOneRow, 0, false},
                           {100, 0xfffffffc8, 8, 16}};

class GpuRoundedSum : public GpuTest {
  protected:
    /// For a kernel on that side.
    AddRoundedRows arguments(Side side, const Case& layout, Memory<BFloat16>& sum,
                             const Memory<float>& term) {
        return {.addition = {.size = layout.size,
                             .first_element = layout.first_element,
                             .first_number = first_number_.on(side),
                             .number = 7,
                             .rounding_key = {3, 0xdeadbeef},
                             .accumulate = true,
                             .term = term.on(side),
                             .sum = sum.on(side)},
                .row_length = layout.row_length,
                .row_stride = layout.row_stride};
    }

    Memory<uint64_t> first_number_ = Memory<uint64_t>({uint64_t{5} << 32});
};

TEST_F(GpuRoundedSum, HasTheBitsOfTheReference) {
    for (const Case& layout : kCases) {
        auto sum = random<BFloat16>(layout.size, layout.aligned);
        for (int step = 0; step < 6; ++step) {
            set_order(step % 2 == 0 ? Threads::Forwards : Threads::Backwards, step);
            const auto term = random<float>(layout.size, layout.aligned, std::pow(10.0, step - 3));
            ++first_number_[0];  // a graph repeats its arguments, and finds another number there
            const auto rows_on = [&](Side side) {
                AddRoundedRows rows = arguments(side, layout, sum, term);
                rows.addition.accumulate = step > 0;
                return rows;
            };
            Memory<BFloat16> expected = sum;
            const AddRoundedRows on_processor = rows_on(Side::Processor);
            for (int64_t i = 0; i < layout.size; ++i) expected[i] = expected_sum(on_processor, i);
            gpu_table()->add_rounded(rows_on(Side::Gpu), nullptr);
            ASSERT_TRUE(sum.same_bits(expected)) << layout.size << " elements, step " << step;
        }
    }
}

TEST_F(GpuRoundedSum, NonfiniteTermsStay) {
    const float infinity = std::numeric_limits<float>::infinity();
    Memory<float> term(24, true);
    Memory<BFloat16> sum(24, true);
    for (int64_t i = 0; i < 24; ++i) term[i] = 1, sum[i] = narrow<BFloat16>(1);
    term[3] = NAN, term[5] = infinity, term[6] = -infinity, sum[6] = narrow<BFloat16>(infinity);
    for (const bool accumulate : {true, false}) {
        Memory<BFloat16> found = sum;
        AddRoundedRows rows = arguments(Side::Gpu, {24, 0, 24, 0}, found, term);
        rows.addition.accumulate = accumulate;
        gpu_table()->add_rounded(rows, nullptr);
        EXPECT_EQ(kinds(found), accumulate ? "...n.+n................." : "...n.+-.................");
    }
}

}  // namespace
}  // namespace argosy::kernels

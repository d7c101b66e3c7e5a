// Sums in bf16 on GPUs have the bits of the scalar reference: for whole parameters and slabs, packs and
// single elements, the first term and later ones.
#include <limits>

#include "kernels/gpu_test.h"
#include "kernels/rounded_sum.h"
#include "kernels/row_layouts.h"

namespace argosy::kernels {
namespace {

class GpuRoundedSum : public GpuTest {
  protected:
    /// For a kernel on that side.
    AddRoundedRows arguments(Side side, const RowLayout& layout, Memory<BFloat16>& sum,
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
    for (const RowLayout& layout : kRowLayouts) {
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

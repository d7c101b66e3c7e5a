// AdamW on GPUs has the bits of the CPU's kernel, which processes parameters row by row: for every
// combination of types, over many updates, and for lists longer than one launch accepts.
#include <limits>
#include <tuple>

#include "kernels/gpu_test.h"
#include "kernels/row_layouts.h"

namespace argosy::kernels {
namespace {

/// Weights, first and second moments are each in fp32 or bf16, selected by the bits of `variant`.
struct Case : RowLayout {
    int variant = 7;
    bool has_copy = true, bf16_gradient = false;
};

/// A state in its stored type; the array of the other type is empty.
struct State {
    State(const Memory<float>& wide, bool is_narrow)
        : fp32(is_narrow ? 0 : wide.size(), true),
          bf16(is_narrow ? wide.size() : 0, true),
          narrowed(is_narrow) {}

    void fill(const Memory<float>& wide) {
        for (int64_t i = 0; i < fp32.size(); ++i) fp32[i] = wide[i];
        for (int64_t i = 0; i < bf16.size(); ++i) bf16[i] = narrow<BFloat16>(wide.at(i));
    }
    bool same_bits(const State& other) const {
        return fp32.same_bits(other.fp32) && bf16.same_bits(other.bf16);
    }
    FloatOrBFloat16 row(Side side, uint32_t key) {
        return {narrowed ? nullptr : fp32.on(side), narrowed ? bf16.on(side) : nullptr, {key, key * 77}};
    }

    Memory<float> fp32;
    Memory<BFloat16> bf16;
    bool narrowed;
};

class Parameter {
  public:
    Parameter(const Case& layout, const Memory<float>& start)
        : layout_(layout),
          gradient_(start, layout.bf16_gradient),
          weights_(start, (layout.variant & 4) != 0),
          first_(start, (layout.variant & 2) != 0),
          second_(start, (layout.variant & 1) != 0),
          bf16_copy_(layout.size, layout.aligned) {
        Memory<float> zeros(layout.size, true);
        for (int64_t i = 0; i < layout.size; ++i) zeros[i] = 0;
        weights_.fill(start), first_.fill(zeros), second_.fill(zeros);
    }

    /// For a kernel on that side.
    AdamWRows arguments(Side side, const Memory<float>& gradient, int64_t number) {
        gradient_.fill(gradient);
        return {.update = {.size = layout_.size,
                           .first_element = layout_.first_element,
                           .update_number = (uint64_t{5} << 32) + number,
                           .gradient = gradient_.row(side, 0).fp32,
                           .bf16_gradient = gradient_.row(side, 0).bf16,
                           .weights = weights_.row(side, 3),
                           .first_moments = first_.row(side, 0xdeadbeef),
                           .second_moments = second_.row(side, 5),
                           .bf16_copy = layout_.has_copy ? bf16_copy_.on(side) : nullptr,
                           .gradient_factor = 0.37F,
                           .decay_factor = 0.9999F,
                           .step_size = 1e-2F / static_cast<float>(number),
                           .root_factor = 1.7F,
                           .beta2 = 0.95F,
                           .one_minus_beta1 = 0.1F,
                           .one_minus_beta2 = 0.05F,
                           .eps = 1e-8F},
                .row_length = layout_.row_length,
                .row_stride = layout_.row_stride};
    }

    const Case& layout() const { return layout_; }
    bool same_bits(const Parameter& other) const {
        return weights_.same_bits(other.weights_) && first_.same_bits(other.first_) &&
               second_.same_bits(other.second_) && bf16_copy_.same_bits(other.bf16_copy_);
    }
    std::string all_kinds() const {
        return kinds(weights_.fp32) + kinds(weights_.bf16) + kinds(first_.fp32) + kinds(first_.bf16) +
               kinds(second_.fp32) + kinds(second_.bf16) + kinds(bf16_copy_);
    }

  private:
    Case layout_;
    State gradient_, weights_, first_, second_;
    Memory<BFloat16> bf16_copy_;
};

template <class T>
T* advanced(T* pointer, int64_t by) {
    return pointer == nullptr ? nullptr : pointer + by;
}

/// The CPU's kernel, one row of the parameter at a time.
void update_on_processor(const AdamWRows& rows) {
    const int64_t length = rows.row_length;
    for (int64_t begin = 0; begin < rows.update.size; begin += length) {
        AdamW args = rows.update;
        args.size = std::min(length, rows.update.size - begin);
        args.first_element += begin / length * rows.row_stride;
        args.gradient = advanced(args.gradient, begin);
        args.bf16_gradient = advanced(args.bf16_gradient, begin);
        for (FloatOrBFloat16* state : {&args.weights, &args.first_moments, &args.second_moments}) {
            *state = {advanced(state->fp32, begin),
                      advanced(state->bf16, begin),
                      {state->rounding_key[0], state->rounding_key[1]}};
        }
        args.bf16_copy = advanced(args.bf16_copy, begin);
        table().adamw(args);
    }
}

class GpuAdamW : public GpuTest {
  protected:
    void compare(const std::vector<Case>& layouts, const std::vector<double>& scales) {
        std::vector<Parameter> found, expected;
        for (const Case& layout : layouts) {
            const auto start = random<float>(layout.size, layout.aligned);
            found.emplace_back(layout, start), expected.emplace_back(layout, start);
        }
        int64_t number = 0;
        for (const double scale : scales) {
            ++number;
            set_order(Threads::Forwards, number);
            std::vector<AdamWRows> list;
            for (size_t i = 0; i < layouts.size(); ++i) {
                const auto gradient = random<float>(layouts[i].size, layouts[i].aligned, scale);
                list.push_back(found[i].arguments(Side::Gpu, gradient, number));
                update_on_processor(expected[i].arguments(Side::Processor, gradient, number));
            }
            gpu_table()->adamw(list, nullptr);
            for (size_t i = 0; i < layouts.size(); ++i) {
                ASSERT_TRUE(found[i].same_bits(expected[i])) << "parameter " << i << ", update " << number;
            }
        }
    }
};

class GpuAdamWTypes : public GpuAdamW, public ::testing::WithParamInterface<int> {};

TEST_P(GpuAdamWTypes, GivesTheCpusBits) {
    std::vector<Case> layouts;
    for (size_t i = 0; i < std::size(kRowLayouts); ++i) {
        layouts.push_back({kRowLayouts[i]});
        layouts[i].variant = GetParam();
        layouts[i].has_copy = i % 2 == 1;
        layouts[i].bf16_gradient = i % 3 == 1;
    }
    compare(layouts, {1, 1e-3, 1e4, 1e-30, 0, 1e-20, 3, 0.01, 1e15, 1});
}

INSTANTIATE_TEST_SUITE_P(Variants, GpuAdamWTypes, ::testing::Range(0, 8));

TEST_F(GpuAdamW, ListsLongerThanALaunchOfAllTypesTogether) {
    std::vector<Case> layouts;
    for (int i = 0; i < 200; ++i) {
        layouts.push_back({kRowLayouts[i % std::size(kRowLayouts)]});
        layouts.back().size = std::min<int64_t>(layouts.back().size, i % 50 * 3);
        layouts.back().variant = i / 7 % 8;
        layouts.back().has_copy = i % 2 == 1;
        layouts.back().bf16_gradient = i % 3 == 1;
    }
    compare(layouts, {1, 0.1, 10});
}

TEST_F(GpuAdamW, AnEmptyListIsAllowed) { gpu_table()->adamw({}, nullptr); }

// The bits of a NaN depend on the machine; the positions of NaNs do not.
TEST_F(GpuAdamW, NonfiniteInputsGiveTheCpusResults) {
    for (int variant = 0; variant < 8; ++variant) {
        const Case layout = {24, 0, 24, 0, true, variant, true};
        auto gradient = random<float>(24), start = random<float>(24);
        const float infinity = std::numeric_limits<float>::infinity();
        gradient[3] = std::bit_cast<float>(0x7fffffff);  // the NaN of GPUs: a carry turns it into 0
        gradient[5] = infinity, gradient[6] = -infinity, gradient[9] = 3e38F;
        start[12] = NAN, start[13] = infinity, start[14] = -infinity, start[15] = 3.4e38F;
        Parameter found(layout, start), expected(layout, start);
        for (int number = 1; number < 4; ++number) {
            gpu_table()->adamw(std::vector{found.arguments(Side::Gpu, gradient, number)}, nullptr);
            update_on_processor(expected.arguments(Side::Processor, gradient, number));
            EXPECT_EQ(found.all_kinds(), expected.all_kinds()) << "variant " << variant;
        }
    }
}

}  // namespace
}  // namespace argosy::kernels

// A tile of 32 by 32 sums in four AMX registers, 16 by 16 each. A register has 16 rows of 64 bytes. A
// register of A holds 16 rows with 32 elements of k each. A register of B holds 16 pairs along k, each of 16
// columns.
//
// A step along k takes four loads of 1 KiB and four instructions of 16 * 16 * 32 products. The products are
// the limit, since a load takes 8 cycles and such an instruction 16.
#pragma once

#include "kernels/cpu/pack.h"

namespace argosy::kernels::ARGOSY_VARIANT {

/// The operand of ldtilecfg: palette 1, eight registers of 16 rows of 64 bytes.
struct alignas(64) MatrixUnitShape {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(MatrixUnitShape) == 64);
inline constexpr MatrixUnitShape kMatrixUnitShape;

template <class Instructions>
struct MatrixUnitTile {
    using Words = PairWords;
    using Element = BFloat16;
    static constexpr int kRows = 32, kColumns = 32, kDepth = 32;
    static constexpr bool kReadsInPlace = false;
    static_assert(kLanes == 16, "a row of a register is a vector");

    /// Configures the unit for the calling thread, and releases it. The configuration belongs to a thread,
    /// and other libraries on the thread use the unit too. A released unit costs nothing when the CPU
    /// switches threads.
    class Session {
      public:
        Session() { Instructions::configure(&kMatrixUnitShape); }
        ~Session() { Instructions::release(); }
        Session(const Session&) = delete;
    };

    static void multiply_first(int64_t /*num_rows*/, int64_t k, const Element* a, const Element* b, float* c,
                               int64_t c_stride, bool accumulate) {
        multiply(k, a, b, c, c_stride, accumulate);
    }

    static void multiply(int64_t k, const Element* a, const Element* b, float* c, int64_t c_stride,
                         bool accumulate) {
        using I = Instructions;
        float *c_low = c, *c_high = c + 16 * c_stride;
        const int64_t c_bytes = 4 * c_stride;
        if (accumulate) {
            I::template load<0>(c_low, c_bytes);
            I::template load<1>(c_low + 16, c_bytes);
            I::template load<2>(c_high, c_bytes);
            I::template load<3>(c_high + 16, c_bytes);
        } else {
            I::template zero<0>();
            I::template zero<1>();
            I::template zero<2>();
            I::template zero<3>();
        }
        for (int64_t begin = 0; begin < k; begin += kDepth, a += kRows * kDepth, b += kColumns * kDepth) {
            I::template load<4>(a, kDepth * sizeof(Element));
            I::template load<6>(b, 2 * kColumns * sizeof(Element));
            I::template dot<0, 4, 6>();
            I::template load<7>(b + kColumns, 2 * kColumns * sizeof(Element));
            I::template dot<1, 4, 7>();
            I::template load<5>(a + 16 * kDepth, kDepth * sizeof(Element));
            I::template dot<2, 5, 6>();
            I::template dot<3, 5, 7>();
        }
        I::template store<0>(c_low, c_bytes);
        I::template store<1>(c_low + 16, c_bytes);
        I::template store<2>(c_high, c_bytes);
        I::template store<3>(c_high + 16, c_bytes);
    }
};

}  // namespace argosy::kernels::ARGOSY_VARIANT

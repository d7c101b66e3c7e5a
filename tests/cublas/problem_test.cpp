// A product in cuBLASLt's terms: row-major matrices become column-major by transposition, without a copy.
#include "cublas/problem.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/error.h"
#include "expect_error.h"

namespace argosy::cublas {
namespace {

constexpr ElementType kType = ElementType::BFloat16;

template <class Data>
MatrixOf<Data> by_rows(Data* data, int64_t rows, int64_t columns, int64_t gap = 0) {
    return {data, kType, rows, columns, columns + gap, 1};
}

struct Memory {
    alignas(256) std::byte a[256], b[256], c[256];
};

TEST(Problem, OfALinearLayer) {
    Memory memory;
    // y [tokens 6, out 4] = x [6, in 8] W^T, W [4, 8].
    const Product forward{.c = by_rows<void>(memory.c, 6, 4),
                          .a = by_rows<const void>(memory.a, 6, 8),
                          .b = by_rows<const void>(memory.b, 4, 8).transposed()};
    const Operands operands = operands_of(forward);
    EXPECT_EQ(operands.problem, (Problem{.type_a = kType,
                                         .type_b = kType,
                                         .result_type = kType,
                                         .scales = ScaleMode::None,
                                         .fast_sums = false,
                                         .max_multiprocessors = 0,
                                         .transpose_a = true,
                                         .transpose_b = false,
                                         .m = 4,
                                         .n = 6,
                                         .k = 8,
                                         .stride_a = 8,
                                         .stride_b = 8,
                                         .stride_d = 4,
                                         .addend = Addend::None,
                                         .bias = false,
                                         .alignment_a = 256,
                                         .alignment_b = 256,
                                         .alignment_c = 256,
                                         .alignment_d = 256,
                                         .alignment_bias = 256}));
    EXPECT_EQ(operands.a, memory.b);
    EXPECT_EQ(operands.b, memory.a);
    EXPECT_EQ(operands.d, memory.c);
    EXPECT_EQ(operands.c, memory.c);
    EXPECT_EQ(operands.factor, 1);
    EXPECT_EQ(operands.addend_factor, 0);
}

TEST(Problem, AnAddendIsCOrAnotherMatrix) {
    Memory memory;
    Product product{.c = by_rows<void>(memory.c, 6, 4),
                    .a = by_rows<const void>(memory.a, 6, 8),
                    .b = by_rows<const void>(memory.b, 8, 4),
                    .addend = memory.c};
    EXPECT_EQ(operands_of(product).problem.addend, Addend::C);
    product.addend = static_cast<const std::byte*>(static_cast<const void*>(memory.a)) + 16;
    const Operands operands = operands_of(product);
    EXPECT_EQ(operands.problem.addend, Addend::Another);
    EXPECT_EQ(operands.problem.alignment_c, 16);
    EXPECT_EQ(operands.c, product.addend);
    EXPECT_EQ(operands.d, memory.c);
}

TEST(Problem, AColumnMajorResultIsNotTransposed) {
    Memory memory;
    const Product product{.c = by_rows<void>(memory.c, 4, 6).transposed(),
                          .a = by_rows<const void>(memory.a, 6, 8),
                          .b = by_rows<const void>(memory.b, 8, 4, 3)};
    const Operands operands = operands_of(product);
    EXPECT_EQ(operands.a, memory.a);
    EXPECT_TRUE(operands.problem.transpose_a && operands.problem.transpose_b);
    EXPECT_EQ(operands.problem.m, 6);
    EXPECT_EQ(operands.problem.n, 4);
    EXPECT_EQ(operands.problem.stride_a, 8);
    EXPECT_EQ(operands.problem.stride_b, 7);
    EXPECT_EQ(operands.problem.stride_d, 6);
}

TEST(Problem, StridesOfOneRowOrColumnDoNotCount) {
    Memory memory;
    const ConstMatrix row{memory.a, kType, 1, 8, /*row_stride=*/0, 1};
    const ConstMatrix column{memory.b, kType, 8, 1, 1, /*column_stride=*/0};
    const Matrix one{memory.c, kType, 1, 1, 0, 0};
    const Problem problem = operands_of({.c = one, .a = row, .b = column}).problem;
    EXPECT_EQ(problem.m * problem.n, 1);
    EXPECT_EQ(problem.k, 8);
    EXPECT_GE(problem.stride_a, problem.transpose_a ? 8 : 1);
    EXPECT_GE(problem.stride_b, problem.transpose_b ? 1 : 8);
    EXPECT_EQ(problem.stride_d, 1);
}

TEST(Problem, KnowsTheAlignmentOfPointers) {
    Memory memory;
    const Product product{.c = by_rows<void>(memory.c + 64, 4, 4),
                          .a = by_rows<const void>(memory.a + 2, 4, 4),
                          .b = by_rows<const void>(memory.b + 24, 4, 4),
                          .bias = memory.b + 4};
    const Problem problem = operands_of(product).problem;
    EXPECT_EQ(problem.alignment_a, 8);  // cuBLASLt's A is our B
    EXPECT_EQ(problem.alignment_b, 2);
    EXPECT_EQ(problem.alignment_d, 64);
    EXPECT_EQ(problem.alignment_bias, 4);
}

TEST(Problem, RefusesInvalidProducts) {
    Memory memory;
    const Product good{.c = by_rows<void>(memory.c, 6, 4),
                       .a = by_rows<const void>(memory.a, 6, 8),
                       .b = by_rows<const void>(memory.b, 8, 4)};
    EXPECT_NO_THROW(operands_of(good));
    const auto expect_refused = [&](auto change, const char* reason) {
        Product bad = good;
        change(bad);
        EXPECT_ERROR(operands_of(bad), RunError, "internal error", reason, "bf16 [6, ");
    };
    expect_refused([](Product& p) { p.b.rows = 7; }, "the shapes do not fit together");
    expect_refused([](Product& p) { p.c.columns = 5; }, "the shapes do not fit together");
    expect_refused([](Product& p) { p.b.type = ElementType::Float16; },
                   "A and B have unequal or unsupported types");
    expect_refused([](Product& p) { p.c.type = ElementType::Float16; }, "C has an unsupported type");
    expect_refused([](Product& p) { p.a.column_stride = 2; }, "neither row-major nor column-major");
    expect_refused([](Product& p) { p.a.row_stride = 7; }, "neither row-major nor column-major");
    expect_refused([](Product& p) { p.c.row_stride = 0; }, "neither row-major nor column-major");
    expect_refused(
        [](Product& p) {
            p.c.row_stride = 1;
            p.c.column_stride = 6;
            p.bias = p.a.data;
        },
        "cannot add a bias");
    expect_refused(
        [](Product& p) {
            p.a.columns = p.b.rows = 0;
            p.bias = p.a.data;
        },
        "cannot add a bias");
    expect_refused(
        [](Product& p) {
            p.a.columns = p.b.rows = 0;
            p.addend = p.c.data;
            p.addend_factor = 2;
        },
        "cannot scale its addend");
}

// cuBLASLt's documentation: the tables of types and of scaling modes, and the requirements of float8 kernels.
TEST(Float8Products, AreThoseOfTheDocumentation) {
    using enum ElementType;
    constexpr Target kAmpere{80, 130100}, kHopper{90, 130100}, kBlackwell{100, 130100};
    const Float8Product good{Float8E4M3, Float8E5M2, BFloat16, ScaleMode::Matrix, 32, 64};
    const auto with = [&](auto change) {
        Float8Product other = good;
        change(other);
        return other;
    };
    for (const Target& target : {kHopper, kBlackwell, Target{89, 120000}})
        EXPECT_EQ(refusal(good, target), "");
    EXPECT_EQ(refusal(with([](auto& p) { p.c = Float32; }), kHopper), "");
    EXPECT_EQ(refusal(with([](auto& p) { std::swap(p.a, p.b); }), kHopper), "");
    EXPECT_EQ(refusal(with([](auto& p) { p.b = Float8E4M3; }), kHopper), "");

    const auto expect_reason = [](const Float8Product& product, const Target& target, const char* reason) {
        EXPECT_NE(refusal(product, target).find(reason), std::string::npos) << refusal(product, target);
    };
    expect_reason(good, {}, "no GPU");
    expect_reason(good, kAmpere, "8.9");
    expect_reason(with([](auto& p) { p.a = Float8E5M2; }), kHopper, "two matrices in E5M2");
    expect_reason(with([](auto& p) { p.a = BFloat16; }), kHopper, "not in float8");
    expect_reason(with([](auto& p) { p.c = Float64; }), kHopper, "fp64");
    expect_reason(with([](auto& p) { p.terms = 72; }), kHopper, "16 does not divide 72 terms");
    expect_reason(with([](auto& p) { p.columns = 24; }), kHopper, "16 does not divide 24 columns");

    const Float8Product lines = with([](auto& p) { p.scales = ScaleMode::Line; });
    EXPECT_EQ(refusal(lines, kHopper), "");
    expect_reason(lines, kBlackwell, "scales of rows only for compute capability 9.0");
    expect_reason(lines, {90, 120800}, "from version 12.9 on");
    const Float8Product blocks = with([](auto& p) { p.scales = ScaleMode::Block; });
    EXPECT_EQ(refusal(blocks, kBlackwell), "");
    expect_reason(blocks, kHopper, "scales of blocks only from compute capability 10.0");
    expect_reason(with([](auto& p) { p.scales = ScaleMode::Block, p.terms = 48; }), kBlackwell,
                  "32 does not divide 48 terms");
    for (const ScaleMode scales : {ScaleMode::Block128, ScaleMode::SquareA, ScaleMode::SquareB}) {
        const Float8Product longer = with([&](auto& p) { p.scales = scales, p.rows = 40; });
        EXPECT_EQ(refusal(longer, kHopper), "");
        EXPECT_EQ(refusal(with([&](auto& p) { p.scales = scales; }), kHopper), "") << "rows are not known";
        for (const Target& target : {Target{89, 130100}, kBlackwell, Target{120, 130100}})
            expect_reason(longer, target, "fp32 scales of blocks only for compute capability 9.0");
        expect_reason(longer, {90, 120800}, "from version 12.9 on");
        expect_reason(with([&](auto& p) { p.scales = scales, p.rows = 20; }), kHopper,
                      "8 does not divide 20 rows");
    }
}

TEST(Float8Products, RequireAdjacentTermsAlignmentAndScales) {
    Memory memory;
    const float scale = 1;
    const auto float8 = [](const void* data, int64_t rows, int64_t columns) {
        return ConstMatrix{data, ElementType::Float8E4M3, rows, columns, columns, 1};
    };
    const Product good{.c = {memory.c, ElementType::BFloat16, 4, 16, 16, 1},
                       .a = float8(memory.a, 4, 32),
                       .b = float8(memory.b, 16, 32).transposed(),
                       .scales = ScaleMode::Matrix,
                       .scale_a = &scale,
                       .scale_b = memory.b};
    const Operands operands = operands_of(good);
    EXPECT_TRUE(operands.problem.transpose_a && !operands.problem.transpose_b);
    EXPECT_EQ(operands.scale_a, memory.b);  // cuBLASLt's A is our B
    EXPECT_EQ(operands.scale_b, &scale);
    // Squares of our B are those of cuBLASLt's A.
    const auto scales_of = [&](ScaleMode scales, bool by_rows) {
        Product product = good;
        product.scales = scales;
        if (!by_rows) product.c.row_stride = 1, product.c.column_stride = 16;
        return operands_of(product).problem.scales;
    };
    EXPECT_EQ(scales_of(ScaleMode::SquareA, true), ScaleMode::SquareB);
    EXPECT_EQ(scales_of(ScaleMode::SquareB, true), ScaleMode::SquareA);
    EXPECT_EQ(scales_of(ScaleMode::SquareB, false), ScaleMode::SquareB);
    EXPECT_EQ(scales_of(ScaleMode::Block128, true), ScaleMode::Block128);
    Product one_row = good;
    one_row.a.rows = one_row.c.rows = 1;
    EXPECT_EQ(operands_of(one_row).problem.stride_b, 32);
    const auto expect_refused = [&](auto change, const char* reason) {
        Product bad = good;
        change(bad);
        EXPECT_ERROR(operands_of(bad), RunError, "internal error", reason, "e4m3 [4, ");
    };
    expect_refused([&](Product& p) { p.a.data = memory.a + 8; }, "is not aligned");
    expect_refused([&](Product& p) { p.c.row_stride = 20; }, "is not aligned");
    expect_refused([](Product& p) { p.scale_b = nullptr; }, "lacks a scale");
    expect_refused([](Product& p) { p.scales = ScaleMode::SquareB, p.fast_sums = true; }, "no fast sums");
    expect_refused(
        [&](Product& p) {
            p.c.type = ElementType::Float32;
            p.bias = memory.b;
        },
        "cannot add a bias");

    const auto expect_order = [&](const Product& product, const Target& target, bool taken) {
        const auto check = [&] { check_target(product, operands_of(product).problem, target); };
        if (taken) {
            EXPECT_NO_THROW(check());
        } else {
            EXPECT_ERROR(check(), RunError, "internal error", "are not adjacent", "e4m3 [");
        }
    };
    Product other = good;
    other.b = float8(memory.b, 32, 16);
    for (const int capability : {89, 90, 120}) {
        expect_order(good, {capability, 130000}, true);
        expect_order(other, {capability, 130000}, false);
    }
    expect_order(other, {100, 130000}, true);
    other.a = float8(memory.a, 32, 4).transposed();
    other.a.column_stride = 16;
    expect_order(other, {100, 130000}, false);  // 4 lines are no multiple of 16
    other.scales = ScaleMode::Block;
    other.a = good.a;
    expect_order(other, {100, 130000}, false);
}

TEST(Build, WithoutCudaGivesAClearError) {
    if (version() != 0) GTEST_SKIP() << "this build has cuBLASLt";
    EXPECT_EQ(version_text(), "0.0.0");
    EXPECT_ERROR(Multiplier(), UserError, "no cuBLASLt", "-DARGOSY_CUDA=ON");
}

TEST(Problem, MessagesShowTheProductBeforeTransposition) {
    Product product{.c = {nullptr, ElementType::Float32, 6, 4, 4, 1},
                    .a = ConstMatrix{reinterpret_cast<const void*>(32), kType, 8, 6, 6, 1}.transposed(),
                    .b = {reinterpret_cast<const void*>(2), kType, 8, 4, 9, 1}};
    EXPECT_EQ(describe(product),
              "bf16 [6, 8] x [8, 4] into fp32 [6, 4]; strides [1, 6], [9, 1] and [4, 1]; aligned to 32, "
              "2 and 256 bytes");
    product.addend = reinterpret_cast<const void*>(64);
    EXPECT_NE(describe(product).find("] plus another matrix into fp32 [6, 4]"), std::string::npos);
    product.c.data = reinterpret_cast<void*>(64);
    EXPECT_NE(describe(product).find("] added to fp32 [6, 4]"), std::string::npos);
}

}  // namespace
}  // namespace argosy::cublas

// Float8 products with each kind of scale, computed by the stand-in for cuBLASLt, against sums in fp64.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/element_type.h"
#include "base/error.h"
#include "cublas/matmul.h"
#include "cuda/memory.h"
#include "expect_error.h"
#include "support/fake_cublaslt.h"
#include "support/fake_gpus.h"

namespace argosy::cublas {
namespace {

using argosy::testing::fake_cublaslt;
using argosy::testing::fake_gpus;
using enum ElementType;

constexpr int64_t kRows = 130, kColumns = 16, kTerms = 160, kBlocks = kTerms / 32;
constexpr int64_t kLongBlocks = 2;  // of 128 terms

/// What shares a scale of one operand.
enum class Shared { All, Line, Block, Block128, Square };
Shared shared_in(ScaleMode mode, bool is_left) {
    if (mode == (is_left ? ScaleMode::SquareA : ScaleMode::SquareB)) return Shared::Square;
    if (has_blocks_of_128(mode)) return Shared::Block128;
    return mode == ScaleMode::Block ? Shared::Block : mode == ScaleMode::Line ? Shared::Line : Shared::All;
}

/// A matrix of lines, each with kTerms elements, and the scale of each element.
struct Lines {
    Lines(int64_t num_lines, ElementType kind, Shared scaling, std::mt19937& random)
        : count(num_lines), type(kind), shared(scaling), values(count * kTerms), scales(scale_bytes()) {
        for (int64_t i = 0; i < count * kTerms; ++i) {
            const auto x = static_cast<float>(std::normal_distribution<double>(0, 4)(random));
            const uint8_t bits = type == Float8E4M3 ? Float8E4M3::saturated(x) : Float8E5M2::saturated(x);
            std::memcpy(values.data() + i, &bits, 1);
        }
        // Numbers between those of squares are NaN: nothing may read them.
        std::memset(scales.data(), shared == Shared::Square ? 0xff : 0, scales.bytes());
        for (int64_t line = 0; line < count; ++line) {
            for (int64_t term = 0; term < kTerms; term += 32) set_scale(line, term, random);
        }
    }

    size_t scale_bytes() const {
        if (shared == Shared::Block) return 2 * 2 * 512;
        const int64_t numbers = shared == Shared::Block128 ? count * kLongBlocks
                                : shared == Shared::Square ? (count + 127) / 128 * 4
                                                           : count;
        return numbers * sizeof(float);
    }

    /// The layouts of scales as matmul.h defines them: the place of a byte, or of a number.
    int64_t place(int64_t line, int64_t term) const {
        switch (shared) {
            case Shared::All:
                return 0;
            case Shared::Line:
                return line;
            case Shared::Block128:
                return term / 128 * count + line;
            case Shared::Square:
                return line / 128 * 4 + term / 128;
            default:
                const int64_t block = term / 32, tile = line / 128 * ((kBlocks + 3) / 4) + block / 4;
                return tile * 512 + line % 128 % 32 * 16 + line % 128 / 32 * 4 + block % 4;
        }
    }
    void set_scale(int64_t line, int64_t term, std::mt19937& random) {
        if (shared == Shared::Block) {
            const auto exponent = static_cast<uint8_t>(124 + random() % 6);
            std::memcpy(scales.data() + place(line, term), &exponent, 1);
        } else {  // of several lines or terms the last one sets it
            const auto scale = static_cast<float>(0.5 + random() % 100);
            std::memcpy(scales.data() + place(line, term) * sizeof(float), &scale, sizeof scale);
        }
    }
    double scale(int64_t line, int64_t term) const {
        if (shared == Shared::Block) {
            const auto exponent = std::to_integer<int>(scales.data()[place(line, term)]);
            return std::ldexp(1.0, exponent - 127);
        }
        float found = 0;
        std::memcpy(&found, scales.data() + place(line, term) * sizeof found, sizeof found);
        return found;
    }
    void set_scale_of_all(float scale) { std::memcpy(scales.data(), &scale, sizeof scale); }
    /// The numbers that the elements stand for, line by line.
    std::vector<double> numbers() const {
        std::vector<double> all;
        for (int64_t i = 0; i < count * kTerms; ++i) all.push_back(number(i / kTerms, i % kTerms));
        return all;
    }
    double number(int64_t line, int64_t term) const {
        const auto bits = std::to_integer<uint8_t>(values.data()[line * kTerms + term]);
        return scale(line, term) * (type == Float8E4M3 ? Float8E4M3::value(bits) : Float8E5M2::value(bits));
    }
    ConstMatrix view() const { return {values.data(), type, count, kTerms, kTerms, 1}; }

    int64_t count;
    ElementType type;
    Shared shared;
    cuda::DeviceMemory values, scales;
};

void expect_right(int capability, ElementType type_a, ElementType type_b, ScaleMode mode, bool accumulate,
                  int64_t num_rows = kRows) {
    SCOPED_TRACE(static_cast<int>(mode));
    fake_cublaslt() = {};
    fake_gpus() = {.num_devices = 1, .capability = capability};
    std::mt19937 random(1);
    Lines a(num_rows, type_a, shared_in(mode, /*is_left=*/true), random),
        b(kColumns, type_b, shared_in(mode, /*is_left=*/false), random);
    if (mode == ScaleMode::None) a.set_scale_of_all(1), b.set_scale_of_all(1);
    const cuda::DeviceMemory memory(num_rows * kColumns * sizeof(float));
    auto* const c = reinterpret_cast<float*>(memory.data());
    for (int64_t i = 0; i < num_rows * kColumns; ++i) c[i] = static_cast<float>(i);
    Multiplier multiplier;
    EXPECT_EQ(multiplier.target().capability, capability);
    const bool fast = accumulate && !has_blocks_of_128(mode);
    ASSERT_EQ(refusal({type_a, type_b, Float32, mode, kColumns, kTerms, num_rows}, multiplier.target()), "");
    const cuda::Stream stream;
    multiplier.run({.c = {c, Float32, num_rows, kColumns, kColumns, 1},
                    .a = a.view(),
                    .b = b.view().transposed(),
                    .addend = accumulate ? c : nullptr,
                    .scales = mode,
                    .scale_a = a.scales.data(),
                    .scale_b = b.scales.data(),
                    .fast_sums = fast},
                   stream.handle());
    stream.synchronize();
    EXPECT_EQ(fake_cublaslt().num_float8, 1);
    EXPECT_EQ(fake_cublaslt().num_fast, fast);
    const std::vector<double> lines_of_a = a.numbers(), lines_of_b = b.numbers();
    for (int64_t row = 0; row < num_rows; ++row) {
        for (int64_t column = 0; column < kColumns; ++column) {
            const int64_t at = row * kColumns + column;
            double sum = 0, size = 0;
            for (int64_t term = 0; term < kTerms; ++term) {
                const double product = lines_of_a[row * kTerms + term] * lines_of_b[column * kTerms + term];
                sum += product;
                size += std::fabs(product);
            }
            if (accumulate) sum += static_cast<double>(at), size += static_cast<double>(at);
            ASSERT_NEAR(c[at], sum, 1e-5 * size) << row << ", " << column;
        }
    }
}

TEST(Float8Multiplier, TakesEveryKindOfScale) {
    for (const bool accumulate : {false, true}) {
        for (const ScaleMode mode : {ScaleMode::None, ScaleMode::Matrix, ScaleMode::Line}) {
            expect_right(90, Float8E4M3, Float8E4M3, mode, accumulate);
            expect_right(90, Float8E5M2, Float8E4M3, mode, accumulate);
            expect_right(90, Float8E4M3, Float8E5M2, mode, accumulate);
            expect_right(90, Float8E4M3, Float8E4M3, mode, accumulate, /*num_rows=*/1);
        }
        for (const ScaleMode mode : {ScaleMode::Block128, ScaleMode::SquareA, ScaleMode::SquareB}) {
            for (const int64_t num_rows : {8, 136}) {
                expect_right(90, Float8E4M3, Float8E4M3, mode, accumulate, num_rows);
                expect_right(90, Float8E5M2, Float8E4M3, mode, accumulate, num_rows);
            }
        }
        expect_right(100, Float8E5M2, Float8E4M3, ScaleMode::Matrix, accumulate);
        expect_right(100, Float8E4M3, Float8E4M3, ScaleMode::Block, accumulate);
    }
}

// A problem that differs in its scales or sums alone has an algorithm of its own.
TEST(Float8Multiplier, ScalesAndSumsAreOfTheProblem) {
    fake_cublaslt() = {};
    fake_gpus() = {.num_devices = 1};
    std::mt19937 random(1);
    const Lines a(kRows, Float8E4M3, Shared::Line, random), b(kColumns, Float8E4M3, Shared::Line, random);
    const cuda::DeviceMemory c(kRows * kColumns * sizeof(uint16_t));
    Product product{.c = {c.data(), BFloat16, kRows, kColumns, kColumns, 1},
                    .a = a.view(),
                    .b = b.view().transposed(),
                    .scale_a = a.scales.data(),
                    .scale_b = b.scales.data()};
    const cuda::Stream stream;
    Multiplier multiplier;
    for (const ScaleMode mode : {ScaleMode::None, ScaleMode::Matrix, ScaleMode::Line}) {
        for (const bool fast : {false, true, false}) {
            product.scales = mode, product.fast_sums = fast;
            multiplier.run(product, stream.handle());
        }
    }
    stream.synchronize();
    EXPECT_EQ(fake_cublaslt().num_questions, 6);

    // A problem without an algorithm is asked for once.
    fake_cublaslt().lacks_float8 = true;
    Multiplier lacking;
    const int num_questions = fake_cublaslt().num_questions;
    for (int i = 0; i < 2; ++i) EXPECT_FALSE(lacking.try_run(product, stream.handle()));
    EXPECT_EQ(fake_cublaslt().num_questions, num_questions + 1);
    EXPECT_ERROR(lacking.run(product, stream.handle()), RunError, "has no algorithm for e4m3 [130, 160]");
    product.b.columns = product.c.columns = 8;  // cublas::refusal() names the reason
    EXPECT_ERROR(lacking.run(product, stream.handle()), RunError, "16 does not divide 8 columns");
}

}  // namespace
}  // namespace argosy::cublas

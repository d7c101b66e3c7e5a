// Every kind of product, computed by the stand-in for cuBLASLt, against a plain loop in fp64.
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "base/error.h"
#include "cublas/matrices.h"
#include "expect_error.h"
#include "support/fake_cublaslt.h"
#include "support/fake_gpus.h"

namespace argosy::cublas {
namespace {

using argosy::testing::fake_cublaslt;
using argosy::testing::fake_gpus;
using testing::Lie;
using testing::OwnedMatrix;

constexpr ElementType kTypes[] = {ElementType::BFloat16, ElementType::Float32, ElementType::Float64};
constexpr Lie kLies[] = {{.by_rows = true},
                         {.by_rows = false},
                         {.by_rows = true, .gap = 3, .offset = 1},
                         {.by_rows = false, .gap = 8, .offset = 2}};

enum class Addend { None, C, Another };
constexpr Addend kAddends[] = {Addend::None, Addend::C, Addend::Another};

struct Case {
    ElementType type, result_type;
    int64_t rows, columns, terms;
    Lie a, b, c;
    Addend addend = Addend::None;
    bool bias = false;
    double factor = 1, addend_factor = 1;
};

std::string text(const Case& one) {
    const auto lie = [](const Lie& x) { return fmt::format("{}+{}", x.by_rows ? "rows" : "columns", x.gap); };
    return fmt::format("type {} into {}, {} x {} x {}, {} {} {}, addend {}, bias {}, factors {} and {}",
                       static_cast<int>(one.type), static_cast<int>(one.result_type), one.rows, one.columns,
                       one.terms, lie(one.a), lie(one.b), lie(one.c), static_cast<int>(one.addend), one.bias,
                       one.factor, one.addend_factor);
}

struct Sum {
    double value, size;  // size: sum of the absolute values of the terms
};

Sum plain_sum(const OwnedMatrix& a, const OwnedMatrix& b, int64_t row, int64_t column) {
    Sum sum{};
    for (int64_t term = 0; term < a.view().columns; ++term) {
        const double product = a.get(row, term) * b.get(term, column);
        sum.value += product;
        sum.size += std::fabs(product);
    }
    return sum;
}

void expect_right(Multiplier& multiplier, const Case& one) {
    SCOPED_TRACE(text(one));
    std::mt19937 random(1);
    OwnedMatrix a(one.type, one.rows, one.terms, one.a), b(one.type, one.terms, one.columns, one.b);
    OwnedMatrix c(one.result_type, one.rows, one.columns, one.c);
    OwnedMatrix bias(one.result_type, 1, one.columns, {});
    a.fill(random);
    b.fill(random);
    bias.fill(random);
    OwnedMatrix another(one.result_type, one.rows, one.columns, one.c);
    c.fill(random);
    another.fill(random);
    const std::vector<double> addends = one.addend == Addend::C ? c.values() : another.values();
    if (one.addend != Addend::C) {  // these elements are not read
        for (int64_t row = 0; row < one.rows; ++row) {
            for (int64_t column = 0; column < one.columns; ++column) {
                c.set(row, column, std::numeric_limits<double>::quiet_NaN());
            }
        }
    }
    OwnedMatrix untouched(one.result_type, one.rows, one.columns, one.c);

    const cuda::Stream stream;
    multiplier.run({.c = c.view(),
                    .a = a.constant(),
                    .b = b.constant(),
                    .addend = one.addend == Addend::None ? nullptr
                              : one.addend == Addend::C  ? c.view().data
                                                         : another.view().data,
                    .bias = one.bias ? bias.view().data : nullptr,
                    .factor = one.factor,
                    .addend_factor = one.addend_factor},
                   stream.handle());
    stream.synchronize();

    const double sum_unit =
        testing::unit_of(one.type == ElementType::Float64 ? one.type : ElementType::Float32);
    for (int64_t row = 0; row < one.rows; ++row) {
        for (int64_t column = 0; column < one.columns; ++column) {
            Sum expected = plain_sum(a, b, row, column);
            expected.value *= one.factor;
            expected.size *= std::fabs(one.factor);
            const double addend = one.addend != Addend::None ? addends[row * one.columns + column] : 0;
            for (const double more : {one.addend_factor * addend, one.bias ? bias.get(0, column) : 0}) {
                expected.value += more;
                expected.size += std::fabs(more);
            }
            const double allowed = testing::unit_of(one.result_type) * std::fabs(expected.value) * 1.01 +
                                   static_cast<double>(one.terms + 4) * sum_unit * expected.size;
            ASSERT_NEAR(c.get(row, column), expected.value, allowed) << row << ", " << column;
            untouched.set(row, column, c.get(row, column));
        }
    }
    EXPECT_EQ(c.bytes(), untouched.bytes()) << "what lies between its elements";
}

std::vector<ElementType> results_of(ElementType type) {
    if (size_bytes(type) == 2) return {type, ElementType::Float32};
    return {type};
}

/// A fresh stand-in before each test; afterwards none of its memory is left.
class Products : public ::testing::Test {
  protected:
    void SetUp() override {
        fake_cublaslt() = {};
        fake_gpus() = {.num_devices = 1};
    }
};

TEST_F(Products, OfEveryTypeAndEveryTransposition) {
    Multiplier multiplier;
    for (const ElementType type : kTypes) {
        for (const ElementType result_type : results_of(type)) {
            for (const Lie& a : kLies) {
                for (const Lie& b : kLies) {
                    for (const Lie& c : kLies) {
                        for (const Addend addend : kAddends) {
                            expect_right(multiplier, {type, result_type, 5, 7, 33, a, b, c, addend});
                            if (!c.by_rows) continue;
                            expect_right(multiplier,
                                         {type, result_type, 5, 7, 33, a, b, c, addend, /*bias=*/true});
                        }
                    }
                }
            }
        }
    }
}

TEST_F(Products, HaveFactors) {
    Multiplier multiplier;
    for (const ElementType type : kTypes) {
        for (const ElementType result_type : results_of(type)) {
            for (const Lie& lie : kLies) {
                for (const Addend addend : kAddends) {
                    for (const bool bias : {false, lie.by_rows}) {
                        expect_right(multiplier, {type, result_type, 5, 7, 33, lie, lie, lie, addend, bias,
                                                  /*factor=*/-2.0315, /*addend_factor=*/3.4445});
                    }
                }
            }
        }
    }
    // Products that differ in their factors alone have the same algorithm.
    const int num_questions = fake_cublaslt().num_questions;
    expect_right(multiplier, {kTypes[0], kTypes[0], 5, 7, 33, kLies[0], kLies[0], kLies[0], Addend::C});
    EXPECT_EQ(fake_cublaslt().num_questions, num_questions);
}

TEST_F(Products, OfEverySize) {
    Multiplier multiplier;
    for (const int64_t rows : {0, 1, 3, 16}) {
        for (const int64_t columns : {0, 1, 3, 16}) {
            for (const int64_t terms : {0, 1, 3, 300}) {
                for (const Lie& one : kLies) {
                    for (const Addend addend : kAddends) {
                        const Case plain{kTypes[0], ElementType::Float32, rows, columns, terms, one, one, one,
                                         addend};
                        expect_right(multiplier, plain);
                    }
                }
            }
        }
    }
    EXPECT_TRUE(std::none_of(fake_cublaslt().ran.begin(), fake_cublaslt().ran.end(),
                             [](int number) { return number == argosy::testing::kRounding; }));
}

TEST_F(Products, RefuseOtherMemoryAndOtherThreads) {
    OwnedMatrix a(kTypes[0], 16, 16, {}), c(kTypes[0], 16, 16, {});
    const Product product{.c = c.view(), .a = a.constant(), .b = a.constant()};
    const cuda::Stream stream;
    Multiplier multiplier;

    std::vector<uint16_t> of_the_host(16 * 16);
    Product elsewhere = product;
    elsewhere.b.data = of_the_host.data();
    EXPECT_ERROR(multiplier.run(elsewhere, stream.handle()), RunError, "cublasLtMatmul failed",
                 "CUBLAS_STATUS_INVALID_VALUE", "bf16 [16, 16] x [16, 16] into bf16");

    fake_cublaslt().num_algorithms = 0;
    Product other = product;
    other.addend = other.c.data;
    EXPECT_ERROR(multiplier.run(other, stream.handle()), RunError,
                 "cuBLASLt 13.1.0 has no algorithm for bf16", "CUBLAS_STATUS_NOT_SUPPORTED",
                 "aligned to 256");
    fake_cublaslt().num_algorithms = 1;
    EXPECT_NO_THROW(multiplier.run(other, stream.handle()));  // a failure leaves nothing behind

    std::thread([&] {
        EXPECT_ERROR(multiplier.run(product, stream.handle()), RunError, "a thread that does not own it");
    }).join();
    stream.synchronize();

    fake_gpus().num_devices = 0;
    EXPECT_ERROR(Multiplier(), RunError, "need a GPU, and this process sees none");
    fake_gpus() = {.num_devices = 1, .free_bytes = 1 << 20};
    EXPECT_ERROR(Multiplier(), RunError, "no memory on the GPU", "1048576 are free");
}

TEST_F(Products, KnowTheirLibrary) {
    EXPECT_EQ(version(), 130100);
    EXPECT_EQ(version_text(), "13.1.0");
}

}  // namespace
}  // namespace argosy::cublas

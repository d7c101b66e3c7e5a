// How a problem gets its algorithm: one question to cuBLASLt's heuristic, whose answer is kept.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "base/error.h"
#include "cublas/matrices.h"
#include "expect_error.h"
#include "support/fake_cublaslt.h"
#include "support/fake_gpus.h"

namespace {

int64_t num_allocations = 0;

}  // namespace

// Replaces the executable's function to count the cost of a product.
void* operator new(size_t bytes) {
    ++num_allocations;
    if (void* const memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace argosy::cublas {
namespace {

using argosy::testing::fake_cublaslt;
using argosy::testing::fake_gpus;
using testing::OwnedMatrix;

constexpr ElementType kOperandType = ElementType::BFloat16;
constexpr int64_t kSize = 32;

/// An fp32 gradient to which products of ones are added, so that its elements count the products.
struct Gradient {
    OwnedMatrix a{kOperandType, kSize, kSize, {}}, c{ElementType::Float32, kSize, kSize, {}};
    cuda::Stream stream;

    Gradient() {
        for (int64_t row = 0; row < kSize; ++row) {
            for (int64_t column = 0; column < kSize; ++column) {
                a.set(row, column, 1);
                c.set(row, column, 0);
            }
        }
    }

    Product product() const {
        return {.c = c.view(), .a = a.constant(), .b = a.constant(), .addend = c.view().data};
    }

    void run(Multiplier& multiplier, const Product& what) {
        multiplier.run(what, stream.handle());
        stream.synchronize();
    }
    void run(Multiplier& multiplier) { run(multiplier, product()); }

    void expect_products(int number) const {
        EXPECT_EQ(c.values(), std::vector<double>(kSize * kSize, static_cast<double>(kSize * number)));
    }
};

int last_algorithm() { return fake_cublaslt().ran.back(); }

class Algorithms : public ::testing::Test {
  protected:
    void SetUp() override {
        fake_cublaslt() = {};
        fake_gpus() = {.num_devices = 1};
    }
    Gradient gradient;
};

TEST_F(Algorithms, AreAskedForOncePerProblem) {
    Multiplier multiplier;
    for (int i = 0; i < 3; ++i) gradient.run(multiplier);
    EXPECT_EQ(fake_cublaslt().num_questions, 1);
    EXPECT_EQ(fake_cublaslt().ran, std::vector<int>({0, 0, 0}));
    gradient.expect_products(3);

    Gradient same;
    same.run(multiplier);
    EXPECT_EQ(fake_cublaslt().num_questions, 1);
    Product other = gradient.product();
    other.addend = nullptr;
    gradient.run(multiplier, other);
    EXPECT_EQ(fake_cublaslt().num_questions, 2);
    other.a = other.a.transposed();
    gradient.run(multiplier, other);
    EXPECT_EQ(fake_cublaslt().num_questions, 3);
}

TEST_F(Algorithms, AreChosenForTheMultiprocessorsThatAProductMayUse) {
    Multiplier multiplier;
    Product product = gradient.product();
    for (const int number : {0, 108, 108, 0}) {
        product.max_multiprocessors = number;
        gradient.run(multiplier, product);
        EXPECT_EQ(fake_cublaslt().max_multiprocessors, number);
    }
    EXPECT_EQ(fake_cublaslt().num_questions, 2);
    gradient.expect_products(4);
}

TEST_F(Algorithms, CostNothingForAProblemAlreadySeen) {
    Multiplier multiplier;
    Product product = gradient.product();
    product.bias = gradient.a.view().data;
    gradient.run(multiplier, product);
    fake_cublaslt().idle = true;
    const int64_t before = num_allocations;
    multiplier.run(product, gradient.stream.handle());
    EXPECT_EQ(num_allocations, before);
    EXPECT_GT(before, 0);
}

TEST_F(Algorithms, DoNotDependOnTheBiasPointer) {
    Multiplier multiplier;
    Product product = gradient.product();
    product.addend = nullptr;
    for (const double bias : {1.0, 2.0}) {
        OwnedMatrix biases(ElementType::Float32, 2, kSize, {});  // both at once, one row each
        for (int64_t column = 0; column < kSize; ++column) {
            biases.set(0, column, 0);
            biases.set(1, column, bias);
        }
        product.bias = biases.view().data;
        gradient.run(multiplier, product);
        gradient.expect_products(1);
        product.bias = static_cast<const float*>(biases.view().data) + kSize;
        gradient.run(multiplier, product);
        EXPECT_EQ(gradient.c.get(3, 4), kSize + bias);
    }
}

TEST_F(Algorithms, FitTheAlignmentOfPointers) {
    Multiplier multiplier;
    const OwnedMatrix factor(kOperandType, kSize, kSize, {.offset = 1});
    const OwnedMatrix result(ElementType::Float32, kSize, kSize, {.offset = 1});
    const auto expect_algorithm = [&](int number, auto change) {
        Product product = gradient.product();
        change(product);
        gradient.run(multiplier, product);
        EXPECT_EQ(last_algorithm(), number);
    };
    expect_algorithm(0, [](Product&) {});
    expect_algorithm(2, [&](Product& product) { product.a = factor.constant(); });  // accepts any
    expect_algorithm(2, [&](Product& product) { product.b = factor.constant(); });
    expect_algorithm(2, [&](Product& product) { product.c = result.view(); });
    EXPECT_EQ(fake_cublaslt().num_questions, 4);
}

TEST_F(Algorithms, ThatNeedTheAddendInPlaceAreNotTaken) {
    const OwnedMatrix zeros(ElementType::Float32, kSize, kSize, {});
    fake_cublaslt().only_in_place = 0;
    Multiplier multiplier;
    gradient.run(multiplier);
    EXPECT_EQ(last_algorithm(), 0);
    Product product = gradient.product();
    product.addend = zeros.constant().data;
    gradient.run(multiplier, product);
    EXPECT_NE(last_algorithm(), 0);
    gradient.expect_products(1);
}

TEST_F(Algorithms, AreThoseOfTheChoice) {
    for (const int choice : {0, 1, 2}) {
        Multiplier multiplier({.choice = choice});
        gradient.run(multiplier);
        EXPECT_EQ(last_algorithm(), choice);
    }
    Multiplier beyond({.choice = 3});
    EXPECT_ERROR(gradient.run(beyond), NoAlgorithm, "has no algorithm for bf16 [32, 32]");
    fake_cublaslt().only_in_place = 0;  // which counts no more for an addend of its own
    const OwnedMatrix zeros(ElementType::Float32, kSize, kSize, {});
    Product product = gradient.product();
    product.addend = zeros.constant().data;
    Multiplier second({.choice = 1});
    gradient.run(second, product);
    EXPECT_EQ(last_algorithm(), 2);
}

TEST_F(Algorithms, ThatFailAreNamed) {
    fake_cublaslt().refused = {0};
    Multiplier multiplier;
    EXPECT_ERROR(gradient.run(multiplier), RunError, "cublasLtMatmul failed: CUBLAS_STATUS_NOT_SUPPORTED",
                 "bf16 [32, 32] x [32, 32] added to fp32 [32, 32]");
}

TEST_F(Algorithms, HaveAWorkspaceOfTheGivenAllocator) {
    std::vector<size_t> asked;
    const auto allocate = [&](size_t bytes) {
        asked.push_back(bytes);
        const auto memory = std::make_shared<cuda::DeviceMemory>(bytes);
        return std::shared_ptr<std::byte>(memory, memory->data());
    };
    Multiplier multiplier({.workspace_bytes = 1 << 20, .allocate = allocate});
    gradient.run(multiplier);
    ASSERT_EQ(asked.size(), 1u);
    EXPECT_GE(asked[0], 1u << 20);
}

TEST_F(Algorithms, KeepToTheWorkspace) {
    // Only the last algorithm takes such a matrix; it needs 1024 bytes.
    const OwnedMatrix factor(kOperandType, kSize, kSize, {.offset = 1});
    Product product = gradient.product();
    product.a = factor.constant();
    Multiplier without({.workspace_bytes = 0});
    EXPECT_ERROR(gradient.run(without, product), RunError, "has no algorithm for bf16 [32, 32]");
    Multiplier little({.workspace_bytes = 1024});
    gradient.run(little, product);
    EXPECT_EQ(last_algorithm(), 2);
}

}  // namespace
}  // namespace argosy::cublas

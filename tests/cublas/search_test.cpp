// How a problem gets its algorithm: one request per problem, with or without timing, and the answer is kept.
#include <gtest/gtest.h>

#include <algorithm>
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
using argosy::testing::FakeAlgorithm;
using testing::OwnedMatrix;

constexpr ElementType kOperandType = ElementType::BFloat16;
constexpr int64_t kSize = 32;
constexpr double kLong = 1e6;  // seconds: a busy machine does not end a search

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

class Searches : public ::testing::Test {
  protected:
    void SetUp() override {
        fake_cublaslt() = {};
        fake_gpus() = {.num_devices = 1};
    }
    Gradient gradient;
};

TEST_F(Searches, AskOncePerProblem) {
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

TEST_F(Searches, CostNothingForAProblemAlreadySeen) {
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

TEST_F(Searches, DoNotDependOnTheBiasPointer) {
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

TEST_F(Searches, PassTheAlignmentOfPointers) {
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

TEST_F(Searches, KeepTheFastest) {
    fake_cublaslt().seconds = {20, 2, 10};
    Multiplier multiplier({.search = Search::Timed, .search_seconds = kLong});
    gradient.run(multiplier);
    EXPECT_EQ(fake_cublaslt().num_questions, 1);
    EXPECT_EQ(last_algorithm(), 1);
    gradient.expect_products(1);
    // Number 1 in each round and then in run(); the others only once more than the launch that loads them.
    EXPECT_GT(std::ranges::count(fake_cublaslt().ran, 1), 4);
    EXPECT_EQ(std::ranges::count(fake_cublaslt().ran, 0), 2);
    EXPECT_EQ(std::ranges::count(fake_cublaslt().ran, 2), 2);

    fake_cublaslt().ran.clear();
    gradient.run(multiplier);
    EXPECT_EQ(fake_cublaslt().ran, std::vector<int>({1}));
    gradient.expect_products(2);
}

TEST_F(Searches, EndInTime) {
    fake_cublaslt().seconds = {20, 2, 10};
    Multiplier multiplier({.search = Search::Timed, .search_seconds = 0});
    gradient.run(multiplier);
    EXPECT_EQ(fake_cublaslt().ran, std::vector<int>(fake_cublaslt().ran.size(), 0));
    gradient.expect_products(1);
}

// Each differs in one thing from one of the two fastest algorithms, of which number 2 is none.
TEST_F(Searches, KeepTheFastestOfTheNeighbours) {
    fake_cublaslt().seconds = {14, 10, 18};
    const auto expect_last = [&](const FakeAlgorithm& expected, auto seconds_of) {
        fake_cublaslt().seconds_of_changed = seconds_of;
        fake_cublaslt().ran.clear();
        Gradient product;
        Multiplier multiplier({.search = Search::Timed, .search_seconds = kLong});
        product.run(multiplier);
        const FakeAlgorithm& last = fake_cublaslt().last;
        EXPECT_EQ(last.number, expected.number);
        EXPECT_EQ(last.num_parts, expected.num_parts);
        EXPECT_EQ(last.tile, expected.tile);
        EXPECT_EQ(last.cluster, expected.cluster);
        product.expect_products(1);
        EXPECT_EQ(Multiplier().remember(multiplier.choices()), 1);
    };
    using Fake = FakeAlgorithm;
    expect_last({.number = 0, .num_parts = 4}, [](const Fake& x) {
        return x.number == 0 && x.num_parts == 4 && x.reduction == Fake::kSumInFloat ? 5.0 : 15.0;
    });
    expect_last({.number = 1, .tile = 2},
                [](const Fake& x) { return x.tile == 2 && x.number == 1 ? 5.0 : 15.0; });
    expect_last({.number = 1, .cluster = 3},
                [](const Fake& x) { return x.cluster == 3 && x.number == 1 ? 5.0 : 15.0; });
    expect_last({.number = 1}, [](const Fake& x) { return x.number == 2 ? 5.0 : 15.0; });
}

// A sum that is rounded to 16 bits may not be split into parts that are rounded, and the workspace bounds the
// parts.
TEST_F(Searches, TakeNoNeighbourThatRoundsPartsOrNeedsMoreWorkspace) {
    fake_cublaslt().seconds = {14, 10, 18};
    fake_cublaslt().seconds_of_changed = [](const FakeAlgorithm&) { return 1.0; };
    const OwnedMatrix narrow(kOperandType, kSize, kSize, {});
    Product product = gradient.product();
    product.c = narrow.view();
    product.addend = nullptr;
    Multiplier multiplier({.search = Search::Timed, .search_seconds = kLong, .workspace_bytes = 2048});
    gradient.run(multiplier, product);
    int num_split = 0;
    for (const FakeAlgorithm& one : fake_cublaslt().launched) {
        EXPECT_LE(one.num_parts, 2);
        if (one.num_parts == 1) continue;
        ++num_split;
        EXPECT_EQ(one.reduction, FakeAlgorithm::kSumInFloat);
    }
    EXPECT_GT(num_split, 0);
}

TEST_F(Searches, TakeNoAlgorithmThatNeedsTheAddendInPlace) {
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

TEST_F(Searches, SkipAlgorithmsThatFail) {
    fake_cublaslt().seconds = {0, 20, 2};
    fake_cublaslt().refused = {0};
    Multiplier timed({.search = Search::Timed, .search_seconds = kLong});
    gradient.run(timed);
    EXPECT_EQ(last_algorithm(), 2);
    gradient.expect_products(1);

    Multiplier asking;
    EXPECT_ERROR(gradient.run(asking), RunError, "cublasLtMatmul failed: CUBLAS_STATUS_NOT_SUPPORTED",
                 "bf16 [32, 32] x [32, 32] added to fp32 [32, 32]");
    fake_cublaslt().refused = {0, 1, 2};
    Multiplier without({.search = Search::Timed, .search_seconds = kLong});
    EXPECT_ERROR(gradient.run(without), RunError, "cublasLtMatmul failed");
    gradient.stream.synchronize();
    gradient.expect_products(1);
}

TEST_F(Searches, WaitForNothingWhileAGraphIsRecorded) {
    fake_cublaslt().seconds = {20, 2, 10};
    Multiplier multiplier({.search = Search::Timed, .search_seconds = kLong});
    fake_gpus().captures = 1;
    gradient.run(multiplier);
    EXPECT_EQ(fake_cublaslt().ran, std::vector<int>({0}));
    fake_gpus().captures = 0;
    gradient.run(multiplier);
    EXPECT_EQ(fake_cublaslt().ran, std::vector<int>({0, 0}));  // equal products give equal bits
    gradient.expect_products(2);
}

TEST_F(Searches, UseTheGivenAllocator) {
    std::vector<size_t> asked;
    const auto allocate = [&](size_t bytes) {
        asked.push_back(bytes);
        const auto memory = std::make_shared<cuda::DeviceMemory>(bytes);
        return std::shared_ptr<std::byte>(memory, memory->data());
    };
    Multiplier multiplier(
        {.search = Search::Timed, .search_seconds = kLong, .workspace_bytes = 1 << 20, .allocate = allocate});
    ASSERT_EQ(asked.size(), 1u);
    EXPECT_GE(asked[0], 1u << 20);
    gradient.run(multiplier);
    gradient.run(multiplier);
    ASSERT_EQ(asked.size(), 2u);
    EXPECT_EQ(asked[1], sizeof(float) * kSize * kSize);

    Product replaced = gradient.product();
    const OwnedMatrix zeros(ElementType::Float32, kSize, kSize, {});
    for (const void* const addend : {static_cast<const void*>(nullptr), zeros.constant().data}) {
        replaced.addend = addend;
        gradient.run(multiplier, replaced);
        EXPECT_EQ(asked.size(),
                  2u);  // an output that is overwritten anyway may be written any number of times
        gradient.expect_products(1);
    }
}

TEST_F(Searches, DoWithoutScratchMemory) {
    const auto allocate = [&](size_t bytes) {
        if (bytes < 1 << 20) throw RunError("no memory on the GPU");
        const auto memory = std::make_shared<cuda::DeviceMemory>(bytes);
        return std::shared_ptr<std::byte>(memory, memory->data());
    };
    Multiplier multiplier({.search = Search::Timed, .search_seconds = kLong, .allocate = allocate});
    gradient.run(multiplier);
    EXPECT_EQ(fake_cublaslt().ran, std::vector<int>({0}));
    gradient.expect_products(1);
}

TEST_F(Searches, KeepToTheWorkspace) {
    fake_cublaslt().seconds = {20, 2, 2};  // the first needs no workspace, the others 1024 bytes
    Multiplier without({.search = Search::Timed, .search_seconds = kLong, .workspace_bytes = 0});
    gradient.run(without);
    EXPECT_EQ(last_algorithm(), 0);
    Multiplier little({.search = Search::Timed, .search_seconds = kLong, .workspace_bytes = 1024});
    gradient.run(little);
    EXPECT_NE(last_algorithm(), 0);
}

}  // namespace
}  // namespace argosy::cublas

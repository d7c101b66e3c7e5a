// How a problem gets its algorithm: asked for once, timed or not, and kept.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "cublas/matrices.h"
#include "expect_error.h"
#include "support/fake_cublaslt.h"
#include "support/fake_gpus.h"

namespace argosy::cublas {
namespace {

using argosy::testing::fake_cublaslt;
using argosy::testing::fake_gpus;
using testing::OwnedMatrix;

constexpr ElementType kType = ElementType::BFloat16;
constexpr int64_t kSize = 32;

/// A gradient of fp32 to which products of ones are added, so that its elements count them.
struct Gradient {
    OwnedMatrix a{kType, kSize, kSize, {}}, c{ElementType::Float32, kSize, kSize, {}};
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
        return {.c = c.view(), .a = a.constant(), .b = a.constant(), .accumulate = true};
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
    other.accumulate = false;
    gradient.run(multiplier, other);
    EXPECT_EQ(fake_cublaslt().num_questions, 2);
    other.a = other.a.transposed();
    gradient.run(multiplier, other);
    EXPECT_EQ(fake_cublaslt().num_questions, 3);
}

TEST_F(Searches, TellHowPointersAreAligned) {
    Multiplier multiplier;
    OwnedMatrix shifted(kType, kSize, kSize, {.offset = 1});
    Product other = gradient.product();
    other.a = shifted.constant();
    gradient.run(multiplier);
    gradient.run(multiplier, other);
    EXPECT_EQ(fake_cublaslt().num_questions, 2);
    EXPECT_EQ(fake_cublaslt().ran, std::vector<int>({0, 2}));  // the last one takes any
}

TEST_F(Searches, KeepTheFastest) {
    fake_cublaslt().seconds = {2e-3, 2e-4, 1e-3};
    Multiplier multiplier({.search = Search::Timed});
    gradient.run(multiplier);
    EXPECT_EQ(fake_cublaslt().num_questions, 1);
    EXPECT_EQ(last_algorithm(), 1);
    gradient.expect_products(1);
    for (const int number : {0, 1, 2}) {
        EXPECT_GT(std::count(fake_cublaslt().ran.begin(), fake_cublaslt().ran.end(), number), 3) << number;
    }

    fake_cublaslt().ran.clear();
    gradient.run(multiplier);
    EXPECT_EQ(fake_cublaslt().ran, std::vector<int>({1}));
    gradient.expect_products(2);
}

TEST_F(Searches, PassOverWhatRefuses) {
    fake_cublaslt().seconds = {0, 2e-3, 2e-4};
    fake_cublaslt().refused = {0};
    Multiplier timed({.search = Search::Timed});
    gradient.run(timed);
    EXPECT_EQ(last_algorithm(), 2);
    gradient.expect_products(1);

    Multiplier asking;
    EXPECT_ERROR(gradient.run(asking), RunError, "cublasLtMatmul failed: CUBLAS_STATUS_NOT_SUPPORTED",
                 "bf16 [32, 32] x [32, 32] added to fp32 [32, 32]");
    fake_cublaslt().refused = {0, 1, 2};
    Multiplier without({.search = Search::Timed});
    EXPECT_ERROR(gradient.run(without), RunError, "cublasLtMatmul failed");
    gradient.stream.synchronize();
    gradient.expect_products(1);
}

TEST_F(Searches, WaitForNothingWhileAGraphIsRecorded) {
    fake_cublaslt().seconds = {2e-3, 2e-4, 1e-3};
    Multiplier multiplier({.search = Search::Timed});
    fake_gpus().captures = true;
    gradient.run(multiplier);
    EXPECT_EQ(fake_cublaslt().ran, std::vector<int>({0}));
    fake_gpus().captures = false;
    gradient.run(multiplier);
    EXPECT_EQ(fake_cublaslt().ran, std::vector<int>({0, 0}));  // equal products, equal bits
    gradient.expect_products(2);
}

TEST_F(Searches, TakeMemoryFromWhomTheyAreTold) {
    std::vector<size_t> asked;
    const auto allocate = [&](size_t bytes) {
        asked.push_back(bytes);
        const auto memory = std::make_shared<cuda::DeviceMemory>(bytes);
        return std::shared_ptr<std::byte>(memory, memory->data());
    };
    Multiplier multiplier({.search = Search::Timed, .workspace_bytes = 1 << 20, .allocate = allocate});
    ASSERT_EQ(asked.size(), 1u);
    EXPECT_GE(asked[0], 1u << 20);
    gradient.run(multiplier);
    gradient.run(multiplier);
    ASSERT_EQ(asked.size(), 2u);
    EXPECT_EQ(asked[1], sizeof(float) * kSize * kSize);

    Product replaced = gradient.product();
    replaced.accumulate = false;
    gradient.run(multiplier, replaced);
    EXPECT_EQ(asked.size(), 2u);  // what is replaced anyway is written as often as it takes
    gradient.expect_products(1);
}

TEST_F(Searches, DoWithoutScratchMemory) {
    const auto allocate = [&](size_t bytes) {
        if (bytes < 1 << 20) throw RunError("no memory on the GPU");
        const auto memory = std::make_shared<cuda::DeviceMemory>(bytes);
        return std::shared_ptr<std::byte>(memory, memory->data());
    };
    Multiplier multiplier({.search = Search::Timed, .allocate = allocate});
    gradient.run(multiplier);
    EXPECT_EQ(fake_cublaslt().ran, std::vector<int>({0}));
    gradient.expect_products(1);
}

TEST_F(Searches, KeepToTheWorkspace) {
    fake_cublaslt().seconds = {2e-3, 2e-4, 2e-4};  // the first wants none, the others 1024 bytes
    Multiplier without({.search = Search::Timed, .workspace_bytes = 0});
    gradient.run(without);
    EXPECT_EQ(last_algorithm(), 0);
    Multiplier little({.search = Search::Timed, .workspace_bytes = 1024});
    gradient.run(little);
    EXPECT_NE(last_algorithm(), 0);
}

}  // namespace
}  // namespace argosy::cublas

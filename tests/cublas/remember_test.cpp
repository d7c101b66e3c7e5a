// The algorithms that one run chose and another run reuses.
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

class Remembering : public ::testing::Test {
  protected:
    void SetUp() override {
        fake_cublaslt() = {};
        fake_gpus() = {.num_devices = 1};
        std::mt19937 random(1);
        a.fill(random);
    }

    /// The bits of A A^T and of A^T A.
    std::vector<std::vector<double>> products(Multiplier& multiplier) {
        std::vector<std::vector<double>> all;
        for (const ConstMatrix& factor : {a.constant(), a.constant().transposed()}) {
            OwnedMatrix c(ElementType::Float32, factor.rows, factor.rows, {});
            multiplier.run({.c = c.view(), .a = factor, .b = factor.transposed()}, stream.handle());
            stream.synchronize();
            all.push_back(c.values());
        }
        return all;
    }

    OwnedMatrix a{kType, 48, 64, {}};
    cuda::Stream stream;
};

TEST_F(Remembering, RepeatsTheBits) {
    fake_cublaslt().seconds = {10, 10, 1};
    Multiplier timed({.search = Search::Timed});
    const auto first = products(timed);
    const std::string choices = timed.choices();
    EXPECT_EQ(std::count(choices.begin(), choices.end(), '\n'), 2);

    fake_cublaslt() = {};
    Multiplier fresh;
    EXPECT_NE(products(fresh), first) << "the stand-in's algorithms round in one way: nothing is tested";

    for (const Search search : {Search::Heuristic, Search::Timed}) {
        fake_cublaslt() = {};
        fake_cublaslt().seconds = {1, 10, 10};
        Multiplier resumed({.search = search});
        EXPECT_EQ(resumed.remember(choices), 2);
        EXPECT_EQ(resumed.choices(), choices) << "before any product";
        EXPECT_EQ(products(resumed), first);
        EXPECT_EQ(fake_cublaslt().num_questions, 0);
        EXPECT_EQ(fake_cublaslt().ran, std::vector<int>({2, 2}));
        EXPECT_EQ(resumed.choices(), choices);
    }
}

TEST_F(Remembering, HoldsWhatTheHeuristicChoseAsWell) {
    Multiplier multiplier;
    EXPECT_EQ(multiplier.choices(), "");
    products(multiplier);
    Multiplier other;
    EXPECT_EQ(other.remember(multiplier.choices()), 2);
}

TEST_F(Remembering, SkipsAnotherVersion) {
    Multiplier multiplier;
    products(multiplier);
    fake_cublaslt() = {};
    fake_cublaslt().version = 130200;
    Multiplier newer;
    EXPECT_EQ(newer.remember(multiplier.choices()), 0);
    EXPECT_EQ(newer.choices(), "");
    products(newer);
    EXPECT_EQ(fake_cublaslt().num_questions, 2);
}

TEST_F(Remembering, AsksAgainIfAnAlgorithmDoesNotWork) {
    fake_cublaslt().seconds = {10, 10, 1};
    Multiplier timed({.search = Search::Timed});
    const auto first = products(timed);
    fake_cublaslt() = {};

    Multiplier cramped({.workspace_bytes = 0});
    EXPECT_EQ(cramped.remember(timed.choices()), 2);
    EXPECT_NE(products(cramped), first);
    EXPECT_EQ(fake_cublaslt().ran, std::vector<int>({0, 0}));
    EXPECT_NE(cramped.choices(), timed.choices());

    fake_cublaslt() = {};
    fake_cublaslt().seconds = {0};  // there is no third file
    Multiplier lacking;
    lacking.remember(timed.choices());
    products(lacking);
    EXPECT_EQ(fake_cublaslt().ran, std::vector<int>({0, 0}));
}

TEST_F(Remembering, DoesNotChangeProblemsAlreadySeen) {
    fake_cublaslt().seconds = {10, 10, 1};
    Multiplier timed({.search = Search::Timed});
    products(timed);
    fake_cublaslt() = {};
    Multiplier multiplier;
    const auto first = products(multiplier);
    multiplier.remember(timed.choices());
    EXPECT_EQ(products(multiplier), first);
}

TEST_F(Remembering, UsesNothingOfAnInvalidText) {
    Multiplier multiplier;
    products(multiplier);
    const std::string choices = multiplier.choices();
    Multiplier other;
    EXPECT_ERROR(other.remember(choices.substr(0, choices.size() - 9)), UserError,
                 "line 2 of the file of matrix");
    EXPECT_EQ(other.choices(), "");
}

}  // namespace
}  // namespace argosy::cublas

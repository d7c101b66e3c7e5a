#include "ops/cross_entropy.h"

#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "layout/param_spec.h"
#include "ops/ops_test.h"
#include "ops/types.h"

namespace argosy::ops {
namespace {

at::Tensor plain_loss(const std::vector<at::Tensor>& in) {
    const at::Tensor &logits = in[0], &targets = in[1];
    const at::Tensor picked = logits.gather(1, targets.clamp_min(0).unsqueeze(1)).squeeze(1);
    return ((logits.logsumexp(1) - picked) * targets.ge(0)).sum();
}

struct Result {
    at::Tensor loss, gradient;
};

/// As ranks do that hold a piece of the vocabulary each: maxima, then sums, combined over the pieces.
Result in_pieces(const at::Tensor& logits, const at::Tensor& targets, int parts, double scale) {
    const auto piece = [&](int part) {
        const auto [begin, size] = layout::chunk(logits.size(1), parts, part);
        return std::pair{logits.narrow(1, begin, size).contiguous(), begin};
    };
    at::Tensor maxima = row_maxima(piece(0).first);
    for (int part = 1; part < parts; ++part) maxima = at::maximum(maxima, row_maxima(piece(part).first));
    at::Tensor sums = at::zeros({2, logits.size(0)}, maxima.options());
    for (int part = 0; part < parts; ++part) {
        const auto [columns, begin] = piece(part);
        sums += softmax_sums(columns, maxima, targets, begin);
    }
    const at::Tensor gradient = at::zeros_like(logits);
    for (int part = 0; part < parts; ++part) {
        const auto [columns, begin] = piece(part);
        gradient.narrow(1, begin, columns.size(1))
            .copy_(cross_entropy_gradient(columns, maxima, sums, targets, begin, scale));
    }
    return {cross_entropy_sum(sums, targets), gradient};
}

class CrossEntropyTest : public OpsTest {
  protected:
    void check(const at::Tensor& logits, const at::Tensor& targets, int parts, double scale) {
        const Differentiated oracle =
            differentiate(plain_loss, {logits, targets}, at::full({}, scale, at::kDouble));
        const auto [loss, gradient] = in_pieces(logits, targets, parts, scale);
        EXPECT_EQ(loss.scalar_type(), at::kDouble);
        // The inputs are exact and sums run in the accumulation type: bf16 has fp32's band here.
        EXPECT_TRUE(close(loss, oracle.value, GetParam().type == at::kDouble ? 1e-12 : 1e-5)) << parts;
        EXPECT_TRUE(right(gradient, oracle.gradients[0])) << parts;
    }
};

TEST_P(CrossEntropyTest, WholeVocabulary) {
    for (const int64_t vocabulary : {1, 2, 13, 257}) {
        check(normal({7, vocabulary}, 3), random_.integers({7}, 0, vocabulary), 1, /*scale=*/0.37);
    }
}

// 13 columns in 4 pieces are 4, 4, 4, 1; in 8 they are 2 x 6, 1, 0.
TEST_P(CrossEntropyTest, PiecesUnevenAndEmpty) {
    for (const int parts : {2, 4, 8}) {
        check(normal({9, 13}, 3), random_.integers({9}, 0, 13), parts, /*scale=*/1.0 / 9);
    }
}

TEST_P(CrossEntropyTest, IgnoredTargetsCountNothing) {
    const at::Tensor logits = normal({5, 7}), targets = at::tensor({-1, 3, -100, 0, -1}, at::kLong);
    check(logits, targets, 3, 0.5);
    const at::Tensor gradient = in_pieces(logits, targets, 3, 0.5).gradient;
    for (const int row : {0, 2, 4}) EXPECT_EQ(gradient[row].abs().max().item<double>(), 0);
    const Result none = in_pieces(logits, at::full({5}, -1, at::kLong), 2, 0.5);
    EXPECT_EQ(none.loss.item<double>(), 0);
    EXPECT_EQ(none.gradient.abs().max().item<double>(), 0);
}

TEST_P(CrossEntropyTest, NoTokens) {
    const Result none = in_pieces(normal({0, 7}), at::zeros({0}, at::kLong), 2, 1);
    EXPECT_EQ(none.loss.item<double>(), 0);
    EXPECT_EQ(none.gradient.sizes(), (at::IntArrayRef{0, 7}));
}

TEST_P(CrossEntropyTest, HugeLogitsDoNotOverflow) {
    check(normal({6, 11}, 1e4), random_.integers({6}, 0, 11), 3, 1);
    const at::Tensor logits = at::tensor({1e30, -1e30, 0.0}, at::kDouble).unsqueeze(0).to(GetParam().type);
    const auto [loss, gradient] = in_pieces(logits, at::tensor({0}, at::kLong), 2, 1);
    EXPECT_EQ(loss.item<double>(), 0);
    EXPECT_EQ(gradient.abs().max().item<double>(), 0);
}

TEST_P(CrossEntropyTest, ATargetOutsideThisPieceAddsNothingToIt) {
    const at::Tensor logits = normal({3, 4}), maxima = row_maxima(logits);
    const at::Tensor inside = softmax_sums(logits, maxima, at::tensor({8, 9, 11}, at::kLong), 8);
    const at::Tensor outside = softmax_sums(logits, maxima, at::tensor({7, 12, 0}, at::kLong), 8);
    EXPECT_TRUE(identical(outside[0], inside[0]));
    EXPECT_EQ(outside[1].abs().max().item<double>(), 0);
    EXPECT_LT(inside[1].min().item<double>(), 0);
}

TEST_P(CrossEntropyTest, APieceWithoutColumnsIsNeutral) {
    const at::Tensor none = normal({3, 0}), targets = at::tensor({0, 1, 2}, at::kLong);
    const at::Tensor maxima = row_maxima(none);
    EXPECT_EQ(maxima.scalar_type(), accumulation_type(GetParam().type));
    EXPECT_TRUE(maxima.isneginf().all().item<bool>());
    const at::Tensor sums = softmax_sums(none, at::zeros_like(maxima), targets, 5);
    EXPECT_TRUE(identical(sums, at::zeros({2, 3}, maxima.options())));
}

ARGOSY_FOR_EACH_VARIANT(CrossEntropyTest);

}  // namespace
}  // namespace argosy::ops

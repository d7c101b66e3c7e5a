#include "ops/cross_entropy.h"

#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <vector>

#include "layout/param_spec.h"
#include "ops/numerics.h"
#include "ops/ops_test.h"

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

/// As on ranks that each hold a piece of the vocabulary: first maxima, then sums, are combined over the
/// pieces.
Result in_pieces(const at::Tensor& logits, const at::Tensor& targets, int parts, double scale) {
    const auto piece = [&](int part) {
        const auto [begin, size] = layout::chunk(logits.size(1), parts, part);
        return std::pair{logits.narrow(1, begin, size).contiguous(), begin};
    };
    std::vector<SoftmaxSums> own;
    for (int part = 0; part < parts; ++part) {
        const auto [columns, begin] = piece(part);
        own.push_back(softmax_sums(columns, targets, begin));
    }
    SoftmaxSums all{own[0].maxima.clone(), at::zeros_like(own[0].sums)};
    for (const SoftmaxSums& each : own) all.maxima = at::maximum(all.maxima, each.maxima);
    for (SoftmaxSums& each : own) {
        raise_maxima(each, all.maxima);
        all.sums += each.sums;
    }
    const at::Tensor gradient = at::zeros_like(logits);
    for (int part = 0; part < parts; ++part) {
        auto [columns, begin] = piece(part);
        turn_into_cross_entropy_gradient(columns, all, targets, begin,
                                         at::full({}, scale, all.maxima.options()));
        gradient.narrow(1, begin, columns.size(1)).copy_(columns);
    }
    return {cross_entropy_sum(all, targets), gradient};
}

class CrossEntropyTest : public OpsTest {
  protected:
    void check(const at::Tensor& logits, const at::Tensor& targets, int parts, double scale) {
        const Differentiated oracle =
            differentiate(plain_loss, {logits, targets}, at::full({}, scale, at::kDouble));
        const auto [loss, gradient] = in_pieces(logits, targets, parts, scale);
        EXPECT_EQ(loss.scalar_type(), at::kDouble);
        // The inputs are exact and sums use the accumulation type, so bf16 has fp32's tolerance here.
        EXPECT_TRUE(close(loss, oracle.value, GetParam().type == at::kDouble ? 1e-12 : 1e-5)) << parts;
        EXPECT_TRUE(right(gradient, oracle.gradients[0])) << parts;
    }
};

TEST_P(CrossEntropyTest, WholeVocabulary) {
    for (const int64_t vocabulary : {1, 2, 13, 257, 1024, 1025, 3001}) {
        check(normal({7, vocabulary}, 3), random_.integers({7}, 0, vocabulary), 1, /*scale=*/0.37);
    }
}

// 13 columns in 4 pieces are 4, 4, 4, 1; in 8 pieces they are six times 2, then 1, then 0.
TEST_P(CrossEntropyTest, PiecesUnevenAndEmpty) {
    for (const int parts : {2, 4, 8}) {
        check(normal({9, 13}, 3), random_.integers({9}, 0, 13), parts, /*scale=*/1.0 / 9);
    }
}

TEST_P(CrossEntropyTest, IgnoredTargetsCountNothing) {
    const at::Tensor logits = normal({5, 7}), targets = at::tensor({-1, 3, -100, 0, -1}, placed(at::kLong));
    check(logits, targets, 3, 0.5);
    const at::Tensor gradient = in_pieces(logits, targets, 3, 0.5).gradient;
    for (const int row : {0, 2, 4}) EXPECT_EQ(gradient[row].abs().max().item<double>(), 0);
    const Result none = in_pieces(logits, at::full({5}, -1, placed(at::kLong)), 2, 0.5);
    EXPECT_EQ(none.loss.item<double>(), 0);
    EXPECT_EQ(none.gradient.abs().max().item<double>(), 0);
}

TEST_P(CrossEntropyTest, SeparateSumsGiveTheSameBits) {
    const at::Tensor logits = normal({9, 3001}, 3), targets = random_.integers({9}, -2, 3001);
    expect_same_bits_separately([&] {
        at::Tensor gradient = logits.clone();
        const SoftmaxSums sums = turn_into_cross_entropy_gradient(
            gradient, targets, at::full({}, 0.37, placed(accumulation_type(GetParam().type))));
        return std::vector{sums.maxima, sums.sums, gradient};
    });
}

TEST_P(CrossEntropyTest, NoTokens) {
    const Result none = in_pieces(normal({0, 7}), at::zeros({0}, placed(at::kLong)), 2, 1);
    EXPECT_EQ(none.loss.item<double>(), 0);
    EXPECT_EQ(none.gradient.sizes(), (at::IntArrayRef{0, 7}));
}

TEST_P(CrossEntropyTest, HugeLogitsDoNotOverflow) {
    check(normal({6, 11}, 1e4), random_.integers({6}, 0, 11), 3, 1);
    const at::Tensor logits =
        at::tensor({1e30, -1e30, 0.0}, placed(at::kDouble)).unsqueeze(0).to(GetParam().type);
    const auto [loss, gradient] = in_pieces(logits, at::tensor({0}, placed(at::kLong)), 2, 1);
    EXPECT_EQ(loss.item<double>(), 0);
    EXPECT_EQ(gradient.abs().max().item<double>(), 0);
}

/// Processes the pieces one after another: losses and greedy choices of each token, also of tokens that do
/// not count.
TEST_P(CrossEntropyTest, ColumnsAddUp) {
    const at::Tensor logits = normal({40, 13}, 3), targets = random_.integers({40}, -2, 13);
    const at::Tensor counted = targets.ge(0), wide = logits.to(at::kDouble);
    const at::Tensor target_logits = wide.gather(1, targets.clamp_min(0).unsqueeze(1)).squeeze(1);
    for (const int64_t size : {13, 12, 5, 1}) {
        SoftmaxSums all = softmax_sums(logits.narrow(1, 0, size), targets, 0);
        for (int64_t begin = size; begin < 13; begin += size) {
            const int64_t count = std::min(size, 13 - begin);
            SoftmaxSums more = softmax_sums(logits.narrow(1, begin, count), targets, begin);
            const at::Tensor maxima = all.maxima.maximum(more.maxima);
            raise_maxima(all, maxima);
            raise_maxima(more, maxima);
            all.sums.add_(more.sums);
        }
        EXPECT_TRUE(close(cross_entropy(all, targets), (wide.logsumexp(1) - target_logits) * counted,
                          GetParam().type == at::kDouble ? 1e-12 : 1e-5))
            << size;
        EXPECT_TRUE(identical(target_is_largest(all, targets), target_logits.eq(wide.amax(1)) * counted))
            << size;
    }
}

TEST_P(CrossEntropyTest, AnyOfEqualLogitsIsTheLargest) {
    const at::Tensor logits =
        at::tensor({1.0, 3.0, 3.0, 2.0}, placed(at::kDouble)).to(GetParam().type).repeat({4, 1});
    const at::Tensor targets = at::tensor({0, 1, 2, 3}, placed(at::kLong));
    EXPECT_TRUE(identical(target_is_largest(softmax_sums(logits, targets, 0), targets),
                          at::tensor({0, 1, 1, 0}, placed(at::kLong)).to(at::kBool)));
}

TEST_P(CrossEntropyTest, ATargetOutsideThisPieceAddsNothingToIt) {
    const at::Tensor logits = normal({3, 4});
    const SoftmaxSums inside = softmax_sums(logits, at::tensor({8, 9, 11}, placed(at::kLong)), 8);
    const SoftmaxSums outside = softmax_sums(logits, at::tensor({7, 12, 0}, placed(at::kLong)), 8);
    EXPECT_TRUE(identical(outside.maxima, inside.maxima));
    EXPECT_TRUE(identical(outside.sums[0], inside.sums[0]));
    EXPECT_EQ(outside.sums[1].abs().max().item<double>(), 0);
    for (const auto& [row, column] : {std::pair{0, 0}, {1, 1}, {2, 3}})
        EXPECT_EQ(inside.sums[1][row].item<double>(), logits[row][column].item<double>());
}

TEST_P(CrossEntropyTest, APieceWithoutColumnsIsNeutral) {
    const at::Tensor targets = at::tensor({0, 1, 2}, placed(at::kLong));
    SoftmaxSums none = softmax_sums(normal({3, 0}), targets, 5);
    EXPECT_EQ(none.maxima.scalar_type(), accumulation_type(GetParam().type));
    EXPECT_TRUE(none.maxima.isneginf().all().item<bool>());
    raise_maxima(none, at::zeros_like(none.maxima));
    EXPECT_TRUE(identical(none.sums, at::zeros({2, 3}, none.maxima.options())));
}

// Columns of -inf change nothing in the others, wherever the first block of columns ends.
TEST_P(CrossEntropyTest, ColumnsOfMinusInfinityAddNothing) {
    const at::Tensor logits = normal({2, 2100}), targets = at::tensor({1100, 2099}, placed(at::kLong));
    at::Tensor masked = logits.clone();
    masked.narrow(1, 0, 1050).fill_(-INFINITY);
    const SoftmaxSums some = softmax_sums(masked, targets, 0);
    const SoftmaxSums rest = softmax_sums(logits.narrow(1, 1050, 1050), targets, 1050);
    EXPECT_TRUE(identical(some.maxima, rest.maxima));
    EXPECT_TRUE(close(some.sums, rest.sums, GetParam().type == at::kDouble ? 1e-12 : 1e-5));
    turn_into_cross_entropy_gradient(masked, some, targets, 0, at::ones({}, some.maxima.options()));
    EXPECT_EQ(masked.narrow(1, 0, 1050).abs().max().item<double>(), 0);
}

TEST_P(CrossEntropyTest, StridedLogitsAndTargets) {
    const at::Tensor all = normal({6, 40}), targets = random_.integers({6, 2}, 0, 13).select(1, 0);
    at::Tensor strided = all.narrow(1, 5, 13), packed = strided.contiguous();
    const at::Tensor before = all.clone();
    const SoftmaxSums sums = softmax_sums(strided, targets, 0), same = softmax_sums(packed, targets, 0);
    EXPECT_TRUE(identical(sums.sums, same.sums));
    const at::Tensor half = at::full({}, 0.5, sums.maxima.options());
    turn_into_cross_entropy_gradient(strided, sums, targets, 0, half);
    turn_into_cross_entropy_gradient(packed, same, targets, 0, half);
    EXPECT_TRUE(right(strided, packed));
    EXPECT_TRUE(identical(all.narrow(1, 0, 5), before.narrow(1, 0, 5)));
    EXPECT_TRUE(identical(all.narrow(1, 18, 22), before.narrow(1, 18, 22)));
}

ARGOSY_FOR_EACH_VARIANT(CrossEntropyTest);

}  // namespace
}  // namespace argosy::ops

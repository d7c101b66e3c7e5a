// The head's sums over a vocabulary that is split over ranks are those of one device.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <gtest/gtest.h>

#include <vector>

#include "model/head.h"
#include "ops/cross_entropy.h"
#include "ops/ops_context.h"
#include "parallel/tensor_parallel.h"
#include "support/communicator_double.h"
#include "support/tensors.h"
#include "support/world.h"

namespace argosy::parallel {
namespace {

using ::argosy::testing::close;
using ::argosy::testing::identical;
using ::argosy::testing::RandomTensors;
using ::argosy::testing::world;

TEST(HeadOnRanks, SumsAreThoseOfOneDevice) {
    const ops::OpsContext context;
    constexpr int64_t kNumTokens = 15;          // rows that do not divide
    for (const int64_t vocab_size : {13, 3}) {  // pieces that are uneven, and empty
        const model::ModelSpec spec{.vocab_size = vocab_size, .dim = 8};
        RandomTensors random(5);
        const at::Tensor x = random.normal({kNumTokens, spec.dim}, at::kFloat);
        const at::Tensor targets = random.integers({kNumTokens}, -1, vocab_size);
        const model::Batch batch{.tokens = targets, .targets = targets};
        model::Weights weights;
        weights.tensors = {random.normal({spec.dim}, at::kFloat),
                           random.normal({vocab_size, spec.dim}, at::kFloat)};
        at::Tensor& output = weights.tensors[1];
        const model::TensorAxis one_device;
        const ops::SoftmaxSums expected = model::Head(spec, one_device).softmax_sums(weights, x, batch);

        const TensorParallelAxis axis(world(), world(), kNumTokens);
        const auto [first_row, num_rows] = axis.share(vocab_size);
        output = output.narrow(0, first_row, num_rows).contiguous();
        const auto [first_token, num_tokens] = axis.share(kNumTokens);
        const at::Tensor own = at::zeros({axis.largest_share(kNumTokens), spec.dim}, x.options());
        own.narrow(0, 0, num_tokens).copy_(x.narrow(0, first_token, num_tokens));
        const ops::SoftmaxSums found = model::Head(spec, axis).softmax_sums(weights, own, batch);
        EXPECT_TRUE(identical(found.maxima, expected.maxima));
        EXPECT_TRUE(close(ops::cross_entropy(found, targets), ops::cross_entropy(expected, targets), 1e-6));
        EXPECT_TRUE(
            identical(ops::target_is_largest(found, targets), ops::target_is_largest(expected, targets)));
    }
}

/// A head with its vocabulary split over ranks, and the same head on one device.
struct SplitHead {
    static constexpr int64_t kNumTokens = 21, kVocabSize = 13;  // neither divides
    RandomTensors random{6};
    model::ModelSpec spec{.vocab_size = kVocabSize, .dim = 8};
    at::Tensor x = random.normal({kNumTokens, spec.dim}, at::kDouble);
    at::Tensor targets = random.integers({kNumTokens}, -1, kVocabSize);
    at::Tensor final_norm = random.normal({spec.dim}, at::kDouble);
    at::Tensor output = random.normal({kVocabSize, spec.dim}, at::kDouble);
    at::Tensor scale = at::full({}, 0.5, at::kDouble);

    struct Result {
        at::Tensor loss, dx, d_norm, d_output;
    };
    /// The norm's gradient is a partial sum on each rank.
    Result run(const model::TensorAxis& axis) const {
        const auto own_tokens = axis.share(kNumTokens), own_vocab = axis.share(kVocabSize);
        const at::Tensor own_x = at::zeros({axis.largest_share(kNumTokens), spec.dim}, x.options());
        own_x.narrow(0, 0, own_tokens.size).copy_(x.narrow(0, own_tokens.begin, own_tokens.size));
        model::Weights weights;
        weights.tensors = {final_norm, output.narrow(0, own_vocab.begin, own_vocab.size).contiguous()};
        model::GradientSum norm{at::empty_like(final_norm)}, own_output{at::empty_like(weights.tensors[1])};
        const model::Gradients gradients{.sums = {&norm, &own_output}};
        const model::Batch batch{.tokens = targets, .targets = targets};
        const auto [loss, dx] =
            model::Head(spec, axis).loss_and_input_gradient(weights, own_x, batch, scale, gradients);
        return {loss, dx, norm.sum, own_output.sum};
    }
};

TEST(HeadOnRanks, GradientsByPiecesAreThoseOfOneDevice) {
    const ops::OpsContext context;
    const SplitHead head;
    const SplitHead::Result expected = head.run(model::TensorAxis());
    const OverlappedTensorAxis axis(world(), world(), SplitHead::kNumTokens);
    EXPECT_EQ(axis.pieces(axis.largest_share(SplitHead::kNumTokens)).size(), 2);
    SplitHead::Result found = head.run(axis);
    axis.sum(found.d_norm, "norm");
    const auto tokens = axis.share(SplitHead::kNumTokens), vocab = axis.share(SplitHead::kVocabSize);
    EXPECT_TRUE(close(found.loss, expected.loss, 1e-12));
    EXPECT_TRUE(close(found.d_norm, expected.d_norm, 1e-12));
    EXPECT_TRUE(
        close(found.dx.narrow(0, 0, tokens.size), expected.dx.narrow(0, tokens.begin, tokens.size), 1e-12));
    EXPECT_TRUE(close(found.d_output, expected.d_output.narrow(0, vocab.begin, vocab.size), 1e-12));
    const at::Tensor padding = found.dx.narrow(0, tokens.size, found.dx.size(0) - tokens.size);
    EXPECT_TRUE(padding.eq(0).all().item<bool>()) << "a row without a token has no gradient";
}

TEST(HeadOnRanks, PiecesAreWholeBlocksOfTokens) {
    constexpr int64_t kTokens = 1024, kBlock = 128;
    const OverlappedTensorAxis axis(world(), world(), kTokens, kBlock);
    const auto pieces = axis.pieces(kTokens / world().size());
    EXPECT_EQ(pieces.size(), 2);
    for (const layout::Range& piece : pieces) EXPECT_EQ(piece.size * world().size() % kBlock, 0);
    EXPECT_EQ(axis.pieces(kTokens / world().size() - 1).size(), 1) << "no such pieces";
}

TEST(HeadOnRanks, GathersTheNextPieceBeforeItComputesOne) {
    const ops::OpsContext context;
    using enum comm::OpKind;
    testing::Submissions submissions;
    testing::CommunicatorDouble ranks = submissions.recorded(world());
    SplitHead().run(OverlappedTensorAxis(ranks, ranks, SplitHead::kNumTokens));
    std::vector<comm::OpKind> kinds;
    for (const auto& launch : submissions.log) {
        ASSERT_EQ(launch.size(), 1);
        kinds.push_back(launch[0].kind);
    }
    // The loss of a piece reduces a maximum and sums; one rank alone has nothing to reduce.
    std::vector expected = {AllGather,     AllGather, AllReduce, AllReduce,
                            ReduceScatter, AllReduce, AllReduce, ReduceScatter};
    if (world().size() == 1) std::erase(expected, AllReduce);
    EXPECT_EQ(kinds, expected);
}

}  // namespace
}  // namespace argosy::parallel

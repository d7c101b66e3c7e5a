// The head's sums over a vocabulary that is split over ranks are those of one device.
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "model/head.h"
#include "ops/cross_entropy.h"
#include "ops/ops_context.h"
#include "parallel/tensor_parallel.h"
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
        weights[model::Role::FinalNorm] = random.normal({spec.dim}, at::kFloat);
        weights[model::Role::Output] = random.normal({vocab_size, spec.dim}, at::kFloat);
        const model::TensorAxis one_device;
        const ops::SoftmaxSums expected = model::Head(spec, one_device).softmax_sums(weights, x, batch);

        const TensorParallelAxis axis(world(), kNumTokens);
        const auto [first_row, num_rows] = axis.share(vocab_size);
        weights[model::Role::Output] =
            weights[model::Role::Output].narrow(0, first_row, num_rows).contiguous();
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

}  // namespace
}  // namespace argosy::parallel

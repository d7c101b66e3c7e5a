// QK-clip: the largest scores against a plain loop, and the rows of wq and wk that an update shrinks.
// optimizers_test.cpp and random_layouts_test.cpp compare layouts.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/numerics.h"
#include "parallel/watched_attention.h"
#include "support/tensors.h"
#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Two sequences of 6 tokens, 4 heads of 10 elements, 2 key heads.
constexpr int64_t kSequences = 2, kTokens = 6, kHeads = 4, kKeyHeads = 2, kWidth = 10;
constexpr int64_t kWindow = 3;
constexpr int64_t kPositions[] = {0, 1, 2, 3, 4, 5, 0, 1, 0, 1, 2, 3};  // the second has two documents

struct Plain {
    double largest = -kInfinity, log_sum_exp = -kInfinity;  // of all queries of a head
};

Plain plain_scores(const at::Tensor& q, const at::Tensor& k, int64_t head) {
    const at::Tensor queries = q.view({kSequences, kTokens, kHeads, kWidth}),
                     keys = k.view({kSequences, kTokens, kKeyHeads, kWidth});
    Plain result;
    for (int64_t sequence = 0; sequence < kSequences; ++sequence) {
        for (int64_t query = 0; query < kTokens; ++query) {
            const int64_t seen = std::min(kPositions[sequence * kTokens + query] + 1, kWindow);
            double sum = 0;
            for (int64_t key = query; key > query - seen; --key) {
                const at::Tensor product = queries[sequence][query][head] *
                                           keys[sequence][key][head * kKeyHeads / kHeads] / std::sqrt(kWidth);
                const double score = product.sum().item<double>();
                result.largest = std::max(result.largest, score);
                sum += std::exp(score);
            }
            result.log_sum_exp = std::max(result.log_sum_exp, std::log(sum));
        }
    }
    return result;
}

TEST(WatchedAttention, KeepsTheLargestScoreOfEachHead) {
    const model::ContextAxis attention;
    auto shape = ops::AttentionShape::of_whole_sequences(kSequences, kTokens, kWidth, kWindow);
    const at::Tensor positions = at::tensor(at::ArrayRef<int64_t>(kPositions), at::kLong);
    int num_exact = 0, num_at_threshold = 0, num_bounds = 0;
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
        for (const double threshold : {1.0, 13.0, 100.0}) {
            SCOPED_TRACE(fmt::format("{} above {}", toString(type), threshold));
            RandomTensors random(3);
            const at::Tensor largest = at::full({kHeads}, -kInfinity, ops::accumulation_type(type));
            const parallel::WatchedAttention watched(attention, {largest, threshold});
            std::vector<Plain> expected(kHeads);
            for (const double size : {6, 2}) {  // the second microbatch has smaller scores
                const at::Tensor q = (random.normal({kSequences * kTokens, kHeads * kWidth}, type) * size),
                                 k = random.normal({kSequences * kTokens, kKeyHeads * kWidth}, type);
                watched.attention(q, k, k, shape, positions);
                for (int64_t head = 0; head < kHeads; ++head) {
                    const Plain plain = plain_scores(q.to(at::kDouble), k.to(at::kDouble), head);
                    expected[head].largest = std::max(expected[head].largest, plain.largest);
                    expected[head].log_sum_exp = std::max(expected[head].log_sum_exp, plain.log_sum_exp);
                }
            }
            for (int64_t head = 0; head < kHeads; ++head) {
                const auto& [score, log_sum_exp] = expected[head];
                const double right = std::max(score, std::min(log_sum_exp, threshold));
                EXPECT_NEAR(largest[head].item<double>() / right, 1, type == at::kDouble ? 1e-12 : 1e-5);
                ++(score > threshold ? num_exact : log_sum_exp > threshold ? num_at_threshold : num_bounds);
            }
        }
    }
    EXPECT_GT(num_exact, 0);
    EXPECT_GT(num_at_threshold, 0);
    EXPECT_GT(num_bounds, 0);
}

constexpr double kThreshold = 30;

/// A model with biases whose scores are on both sides of the threshold. A rate of 0 leaves the update to
/// QK-clip.
class LargeScores {
  public:
    explicit LargeScores(parallel::Precision precision = {at::kDouble, at::kDouble, at::kDouble})
        : run_({.precision = precision, .lr = 0, .qk_clip = kThreshold}, self()) {
        for (const auto& parameter : run_.trainer().model().parameters()) {
            if (!parameter->spec().makes_scores) continue;
            parameter->master().mul_(18);
            parameter->refresh_compute();
        }
    }
    TinyRun& operator*() { return run_; }
    TinyRun* operator->() { return &run_; }

  private:
    TinyRun run_;
};

/// By key head of a layer.
std::vector<double> expected_factors(const at::Tensor& scores) {
    std::vector<double> factors;
    for (int64_t head = 0; head < kHeads; head += kHeads / kKeyHeads) {
        const double largest = std::max(scores[head].item<double>(), scores[head + 1].item<double>());
        factors.push_back(largest > kThreshold ? std::sqrt(kThreshold / largest) : 1);
    }
    return factors;
}

TEST(QkClip, ShrinksTheHeadsWithLargeScores) {
    LargeScores run;
    const train::StepTotals totals = run->forward_backward(0);
    const NamedTensors before = run->weights();
    const train::StepResult result = run->update(totals);
    const NamedTensors after = run->weights();
    int num_scaled = 0, num_kept = 0;
    for (const auto& [name, weights] : before) {
        at::Tensor expected = weights.clone();
        if (name.find("attention.wq.") != std::string::npos ||
            name.find("attention.wk.") != std::string::npos) {
            const auto factors =
                expected_factors(totals.largest_scores[name[std::string("layers.").size()] - '0']);
            const int64_t rows = weights.size(0) / kKeyHeads;
            for (int64_t head = 0; head < kKeyHeads; ++head) {
                expected.narrow(0, head * rows, rows).mul_(factors[head]);
                ++(factors[head] < 1 ? num_scaled : num_kept);
            }
        }
        EXPECT_LE((after.at(name) - expected).abs().max().item<double>(), 1e-15) << name;
    }
    EXPECT_GT(num_scaled, 0);
    EXPECT_GT(num_kept, 0);
    ASSERT_TRUE(result.scores);
    EXPECT_GT(result.scores->num_too_large, 0);
    EXPECT_EQ(result.scores->largest, totals.largest_scores.max().item<double>());
}

// The input of the first layer is the same after the update.
TEST(QkClip, BringsScoresToTheThreshold) {
    LargeScores run;
    const train::StepTotals before = run->forward_backward(0);
    run->update(before);
    const at::Tensor after = run->forward_backward(0).largest_scores[0];
    for (int64_t first = 0; first < kHeads; first += kHeads / kKeyHeads) {
        const double largest = before.largest_scores[0].narrow(0, first, 2).max().item<double>(),
                     found = after.narrow(0, first, 2).max().item<double>();
        EXPECT_NEAR(found, std::min(largest, kThreshold), 1e-9);
    }
    EXPECT_GT(before.largest_scores[0].max().item<double>(), kThreshold);
}

TEST(QkClip, LeavesTheWeightsIfTheUpdateIsSkipped) {
    LargeScores run;
    const NamedTensors before = run->weights();
    const train::StepTotals totals = run->forward_backward(0);
    const auto result = run->trainer().step().update(totals, /*lr=*/0, {.loss = 0});
    EXPECT_TRUE(result.skipped);
    EXPECT_GT(result.scores->num_too_large, 0);
    EXPECT_EQ(largest_difference(run->weights(), before).relative, 0);
}

// Rounding to the nearest bf16 would leave the weights as they are.
TEST(QkClip, RoundsBFloat16Stochastically) {
    constexpr double kFactor = 0.9995;
    LargeScores run({at::kBFloat16, at::kBFloat16, at::kFloat});
    const NamedTensors before = run->weights();
    train::QkClip clip(kThreshold, /*seed=*/1, run->trainer().model());
    clip.apply(at::full({5, kHeads}, kThreshold / (kFactor * kFactor), at::kFloat), /*update=*/1);
    const NamedTensors after = run->weights();
    const auto sum = [](const at::Tensor& weights) { return weights.abs().sum().item<double>(); };
    for (int layer = 0; layer < 5; ++layer) {
        const std::string name = fmt::format("layers.{}.attention.wq.weight", layer);
        EXPECT_NEAR(sum(after.at(name)) / sum(before.at(name)), kFactor, 2e-4) << name;
    }
}

}  // namespace
}  // namespace argosy::testing

// Routing against a plain choice by sorting and autograd in fp64.
#include "ops/routing.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "ops/numerics.h"
#include "ops/ops_test.h"

namespace argosy::ops {
namespace {

using Score = Router::Score;

class RoutingTest : public OpsTest {
  protected:
    at::ScalarType type_ = accumulation_type(GetParam().type);
    double tolerance_ = type_ == at::kDouble ? 1e-12 : 1e-5;

    /// Logits of which many are equal. No sums of other sigmoids are equal, as s(x) + s(-x) = 1 would be.
    at::Tensor logits(int64_t tokens, int64_t experts) {
        return random_.normal({tokens, experts}, type_).mul(4).round().div(4).add(0.1);
    }
};

std::vector<Router> routers() {
    std::vector<Router> made;
    for (const Score score : {Score::Softmax, Score::Sigmoid}) {
        for (const bool normalize : {true, false}) {
            for (const int64_t k : {1, 2, 3, 5, 8}) made.push_back({8, k, score, normalize, 2.5});
            made.push_back({24, 6, score, normalize, 1, /*num_groups=*/6, /*top_groups=*/2});
            made.push_back({24, 8, score, normalize, 1, /*num_groups=*/24, /*top_groups=*/8});
        }
    }
    made.push_back({600, 3});  // more than a GPU's kernels know
    return made;
}

std::string words(const Router& router) {
    return "top " + std::to_string(router.top_k) + " of " + std::to_string(router.num_experts) + " in " +
           std::to_string(router.top_groups) + " of " + std::to_string(router.num_groups) + " groups, " +
           (router.score == Score::Softmax ? "softmax" : "sigmoid") +
           (router.normalize ? ", normalized" : "");
}

/// The first `count` of `places`, the largest values first, equal ones by place.
std::vector<int64_t> best(const std::vector<double>& values, std::vector<int64_t> places, int64_t count) {
    std::stable_sort(places.begin(), places.end(), [&](auto a, auto b) { return values[a] > values[b]; });
    places.resize(count);
    return places;
}

std::vector<int64_t> numbers(int64_t begin, int64_t end) {
    std::vector<int64_t> made(end - begin);
    std::iota(made.begin(), made.end(), begin);
    return made;
}

/// The experts of a token from its scores for the choice.
std::vector<int64_t> chosen(const std::vector<double>& scores, const Router& router) {
    const int64_t size = router.num_experts / router.num_groups;
    std::vector<double> of_groups;
    for (int64_t group = 0; group < router.num_groups; ++group) {
        double sum = 0;
        for (const int64_t expert :
             best(scores, numbers(group * size, (group + 1) * size), std::min<int64_t>(2, size)))
            sum += scores[expert];
        of_groups.push_back(sum);
    }
    std::vector<int64_t> allowed;
    for (const int64_t group : best(of_groups, numbers(0, router.num_groups), router.top_groups)) {
        for (int64_t i = group * size; i < (group + 1) * size; ++i) allowed.push_back(i);
    }
    std::sort(allowed.begin(), allowed.end());
    return best(scores, allowed, router.top_k);
}

at::Tensor scores_of(const at::Tensor& logits, const Router& router) {
    return router.score == Score::Softmax ? logits.softmax(1) : logits.sigmoid();
}

/// The weights of given experts, as a formula of the logits.
auto formula_of(const Router& router, const at::Tensor& experts) {
    return [=](const std::vector<at::Tensor>& in) {
        const at::Tensor weights = scores_of(in[0], router).gather(1, experts.cpu().to(at::kLong));
        return (router.normalize ? weights / weights.sum(1, /*keepdim=*/true) : weights) * router.scale;
    };
}

TEST_P(RoutingTest, ChoosesTheExpertsWithTheLargestScores) {
    for (const Router& router : routers()) {
        SCOPED_TRACE(words(router));
        const at::Tensor all = logits(37, router.num_experts);
        const at::Tensor bias = random_.normal({router.num_experts}, type_).mul(2).round().div(8);
        for (const at::Tensor& added : {at::Tensor(), bias}) {
            const Routing routing = route(all, router, added);
            // The choice between equal scores needs scores of the same bits: equal logits have them.
            at::Tensor choices = scores_of(all.cpu(), router);
            if (added.defined()) choices = choices + added.cpu();
            choices = choices.to(at::kDouble);
            const at::Tensor experts = routing.experts.cpu();
            for (int64_t token = 0; token < all.size(0); ++token) {
                const auto* row = choices.const_data_ptr<double>() + token * router.num_experts;
                const std::vector<int64_t> expected = chosen({row, row + router.num_experts}, router);
                EXPECT_TRUE(identical(experts[token], at::tensor(expected).to(at::kInt))) << token;
            }
        }
    }
}

TEST_P(RoutingTest, WeightsAndGradientsAreThoseOfTheFormula) {
    for (const Router& router : routers()) {
        SCOPED_TRACE(words(router));
        const at::Tensor all = logits(37, router.num_experts),
                         dweights = random_.normal({37, router.top_k}, type_),
                         bias = random_.normal({router.num_experts}, type_);
        const Routing routing = route(all, router, bias);
        const Differentiated oracle = differentiate(formula_of(router, routing.experts), {all}, dweights);
        EXPECT_EQ(routing.weights.scalar_type(), type_);
        EXPECT_TRUE(close(routing.weights, oracle.value, tolerance_));
        const at::Tensor dlogits = route_backward(dweights, all, routing, router);
        if (router.normalize && router.top_k == 1) {
            EXPECT_LT(dlogits.abs().max().item<double>(), tolerance_) << "the weight is constant";
        } else {
            EXPECT_TRUE(close(dlogits, oracle.gradients[0], tolerance_));
        }
    }
}

TEST_P(RoutingTest, RowsAreSortedByExpertThenBySlot) {
    for (const int64_t tokens : {0, 1, 50}) {
        const Routing routing = route(logits(tokens, 12), {12, 3});
        const at::Tensor experts = routing.experts.cpu().reshape({-1}).to(at::kLong);
        EXPECT_TRUE(identical(routing.order.cpu(), std::get<1>(experts.sort(true, 0, false)).to(at::kInt)));
        EXPECT_TRUE(identical(routing.counts.cpu(), at::one_hot(experts, 12).sum(0)));
    }
}

TEST_P(RoutingTest, ANaNShowsInTheWeights) {
    for (const Score score : {Score::Softmax, Score::Sigmoid}) {
        const at::Tensor all = logits(2, 8);
        all[1][5].fill_(NAN);
        const at::Tensor weights = route(all, {8, 2, score}).weights;
        EXPECT_TRUE(weights[0].isfinite().all().item<bool>());
        EXPECT_TRUE(weights[1].isnan().all().item<bool>());
    }
}

TEST_P(RoutingTest, SmallSigmoidsAreNotDividedByZero) {
    const at::Tensor all = at::full({1, 4}, -1000, placed(type_));
    const Router router{4, 2, Score::Sigmoid};
    const Routing routing = route(all, router);
    EXPECT_EQ(routing.weights.abs().max().item<double>(), 0);
    EXPECT_TRUE(route_backward(at::full({1, 2}, 1, placed(type_)), all, routing, router)
                    .isfinite()
                    .all()
                    .item<bool>());
}

TEST_P(RoutingTest, PermutesAndCombines) {
    for (const auto& [tokens, k, dim] : {std::tuple{0, 2, 5}, {7, 1, 13}, {33, 3, 40}, {20, 8, 1}}) {
        const Routing routing = route(logits(tokens, 9), {9, k});
        const at::Tensor x = normal({tokens, dim}), y = normal({tokens * k, dim});
        const at::Tensor order = routing.order.cpu().to(at::kLong);
        const auto formula = [&, k = k](const auto& in) {
            return in[0].index_select(0, order.div(k, "trunc"));
        };
        const Differentiated oracle = differentiate(formula, {x}, y);
        EXPECT_TRUE(identical(permute(x, routing.order, k), oracle.value.to(GetParam().type)));
        EXPECT_TRUE(right(combine(y, routing.order, k), oracle.gradients[0]));
        EXPECT_TRUE(identical(combine(permute(y, routing.order, 1), routing.order, 1), y));
    }
}

// 256 + 1 - 256 = 1 in fp32, in any order of the rows; in bf16 256 + 1 = 256.
TEST_P(RoutingTest, ATokenIsAddedInTheOrderOfItsSlotsAndRoundedOnce) {
    const at::Tensor order = at::tensor({2, 0, 1}, placed(at::kInt));
    const auto sum_of = [&](const std::vector<double>& slots) {
        const at::Tensor y = at::tensor({slots[2], slots[0], slots[1]}, placed(at::kDouble));
        return combine(y.to(GetParam().type).unsqueeze(1), order, 3).item<double>();
    };
    EXPECT_EQ(sum_of({256, 1, -256}), 1);
    const double huge = GetParam().type == at::kDouble ? 0x1p60 : 0x1p30;
    EXPECT_EQ(sum_of({huge, -huge, 1}), 1);
    EXPECT_EQ(sum_of({huge, 1, -huge}), 0) << "not in the order of the slots";
}

TEST_P(RoutingTest, RefusesWhatIsNoChoice) {
    const at::Tensor all = logits(2, 8);
    EXPECT_THROW(route(all, {6, 2}), Error) << "logits of other experts";
    EXPECT_THROW(route(all, {8, 9}), Error);
    EXPECT_THROW(route(all, {.num_experts = 8, .top_k = 2, .num_groups = 3}), Error);
    EXPECT_THROW(route(all, {.num_experts = 8, .top_k = 3, .num_groups = 4, .top_groups = 1}), Error);
}

ARGOSY_FOR_EACH_VARIANT(RoutingTest);

}  // namespace
}  // namespace argosy::ops

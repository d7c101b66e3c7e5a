// Sums of gradients in bf16: a layer computes each gradient in fp32 and adds it with one stochastic rounding,
// also where it computes some rows at a time.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "model/layer.h"
#include "ops/ops_context.h"
#include "support/tensors.h"

namespace argosy::model {
namespace {

using testing::identical;

constexpr uint64_t kSeed = 5;

/// The sums of some roles, in fp32 or bf16.
class Sums {
  public:
    void add(Role role, std::vector<int64_t> shape, at::ScalarType type) {
        GradientSum& sum = sums_[role];
        sum.sum = at::empty(shape, type);
        gradients_[role] = &sum;
        if (type != at::kBFloat16) return;
        const int64_t length = shape.size() == 1 ? shape[0] : shape[1];
        sum.rounding = {key_of(role), {.length = length, .stride = length}, &first_rounding()};
    }
    void start_microbatch(int64_t number) {
        for (auto& [role, sum] : sums_) sum.start_microbatch(number);
    }
    static ops::RoundingKey key_of(Role role) {
        return ops::rounding_key(kSeed, std::to_string(static_cast<int>(role)), ops::Rounded::Gradient);
    }

    const Gradients& gradients() const { return gradients_; }
    const std::map<Role, GradientSum>& all() const { return sums_; }
    const at::Tensor& of(Role role) const { return sums_.at(role).sum; }

  private:
    static const ops::FirstRounding& first_rounding() {
        static const ops::FirstRounding first(c10::kCPU);
        return first;
    }

    std::map<Role, GradientSum> sums_;
    Gradients gradients_;
};

class RoundedGradients : public ::testing::Test {
  protected:
    static constexpr int64_t kTokens = 19, kDim = 12, kVocabulary = 30;

    static Sums make_sums(at::ScalarType type) {
        Sums sums;
        sums.add(Role::Embedding, {kVocabulary, kDim}, type);
        sums.add(Role::AttentionNorm, {kDim}, type);
        sums.add(Role::Wq, {20, kDim}, type);
        sums.add(Role::Wk, {8, kDim}, type);
        sums.add(Role::Wv, {8, kDim}, type);
        sums.add(Role::BiasQ, {20}, type);
        sums.add(Role::BiasK, {8}, type);
        sums.add(Role::BiasV, {8}, type);
        sums.add(Role::Wo, {kDim, 20}, type);
        return sums;
    }

    at::Tensor normal(at::IntArrayRef shape) { return random_.normal(shape, at::kBFloat16); }

    /// The work of one microbatch: all kinds, of roles and of joins.
    WeightWork work() {
        const at::Tensor dqkv = normal({kTokens, 36}), x = normal({kTokens, kDim});
        WeightWork work;
        work.add_product(Role::Wo, normal({kTokens, kDim}), normal({kTokens, 20}));
        work.add_row_sum(Join::QkvBias, dqkv);
        work.add_product(Join::Qkv, dqkv, x);
        work.add_value(Role::AttentionNorm, random_.normal({kDim}, at::kFloat));
        work.add_lookup(Role::Embedding, normal({kTokens, kDim}), at::arange(kTokens, at::kLong) * 7 % 13 + 4,
                        /*begin=*/2, axis_);
        return work;
    }

    ops::OpsContext context_;
    TensorAxis axis_;
    testing::RandomTensors random_{4};
};

TEST_F(RoundedGradients, AreThoseOfFp32RoundedOncePerMicrobatch) {
    for (const ops::Path path : {ops::Path::Fused, ops::Path::Plain}) {
        const ops::OpsContext context(path);
        Sums sums = make_sums(at::kBFloat16);
        std::map<Role, at::Tensor> expected;
        for (int64_t microbatch = 0; microbatch < 3; ++microbatch) {
            WeightWork rounded = work(), wide = rounded;
            Sums alone = make_sums(at::kFloat);
            wide.run(alone.gradients());
            sums.start_microbatch(microbatch);
            rounded.run(sums.gradients());
            for (const auto& [role, gradient] : alone.all()) {
                at::Tensor& sum = expected[role];
                const at::Tensor total = sum.defined() ? sum.to(at::kFloat) + gradient.sum : gradient.sum;
                sum = ops::rounded_stochastically(total, {.length = total.numel()},
                                                  ops::rounding_number(0, microbatch), Sums::key_of(role));
                EXPECT_FALSE(sums.all().at(role).empty);
                EXPECT_TRUE(identical(sums.of(role), sum)) << "role " << static_cast<int>(role);
            }
        }
    }
}

// 17 million elements are more than a processor computes at a time.
TEST_F(RoundedGradients, RowsAtATimeGiveTheSameBits) {
    constexpr int64_t kRows = 4200, kColumns = 4096, kFewTokens = 3;
    ASSERT_LT(WeightWork::rows_at_once(kRows, kColumns, at::empty({0})), kRows);
    const at::Tensor dy = normal({kFewTokens, kRows}), x = normal({kFewTokens, kColumns});
    const at::Tensor tokens = at::arange(kFewTokens, at::kLong) * 2000 + 50;
    Sums sums, whole;
    for (const Role role : {Role::Output, Role::Embedding}) {
        sums.add(role, {kRows, kColumns}, at::kBFloat16);
        whole.add(role, {kRows, kColumns}, at::kFloat);
    }
    WeightWork work;
    work.add_product(Role::Output, dy, x);
    work.add_lookup(Role::Embedding, x, tokens, /*begin=*/0, axis_);
    WeightWork same = work;
    work.run(sums.gradients());
    same.run(whole.gradients());
    ops::FirstRounding first(c10::kCPU);
    for (const Role role : {Role::Output, Role::Embedding}) {
        const at::Tensor expected = at::empty({kRows, kColumns}, at::kBFloat16);
        ops::add_rounded(expected, whole.of(role), /*accumulate=*/false,
                         {Sums::key_of(role), {.length = kColumns, .stride = kColumns}, &first});
        EXPECT_TRUE(identical(sums.of(role), expected)) << "role " << static_cast<int>(role);
    }
}

// Over many microbatches, the sum follows a sum in fp64, while a sum that is rounded to nearest stops to
// grow.
TEST_F(RoundedGradients, OfManyMicrobatchesFollowAnOracleInFp64) {
    constexpr int64_t kMicrobatches = 800, kRows = 16, kColumns = 24;
    Sums sums;
    sums.add(Role::Wo, {kRows, kColumns}, at::kBFloat16);
    at::Tensor oracle = at::zeros({kRows, kColumns}, at::kDouble);
    at::Tensor nearest = at::zeros({kRows, kColumns}, at::kBFloat16);
    for (int64_t microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
        const at::Tensor dy = random_.normal({2, kRows}, at::kBFloat16, 0.1) + 1,
                         x = random_.normal({2, kColumns}, at::kBFloat16, 0.1) + 1;
        WeightWork work;
        work.add_product(Role::Wo, dy, x);
        sums.start_microbatch(microbatch);
        work.run(sums.gradients());
        const at::Tensor exact = at::matmul(dy.t().to(at::kDouble), x.to(at::kDouble));
        oracle += exact;
        nearest = (nearest.to(at::kFloat) + exact.to(at::kFloat)).to(at::kBFloat16);
    }
    const auto error = [&](const at::Tensor& found) {
        const at::Tensor difference = found.to(at::kDouble) - oracle;
        return std::sqrt((difference.square().sum() / oracle.square().sum()).item<double>());
    };
    const auto bias = [&](const at::Tensor& found) {
        return (found.to(at::kDouble).sum() / oracle.sum()).item<double>() - 1;
    };
    RecordProperty("error_stochastic", std::to_string(error(sums.of(Role::Wo))));
    RecordProperty("error_nearest", std::to_string(error(nearest)));
    // Each of 800 roundings errs by at most 2^-7 of the sum so far.
    EXPECT_LT(error(sums.of(Role::Wo)), 0.06);
    EXPECT_LT(std::abs(bias(sums.of(Role::Wo))), 0.06 * 4 / std::sqrt(double{kRows * kColumns}));
    EXPECT_GT(error(nearest), 2 * error(sums.of(Role::Wo)));
    EXPECT_GT(std::abs(bias(nearest)), 5 * std::abs(bias(sums.of(Role::Wo))));
}

/// Calls `taken_` when gathered rows are taken.
class LateAxis : public TensorAxis {
  public:
    explicit LateAxis(std::function<void()> taken) : taken_(std::move(taken)) {}
    std::unique_ptr<ComingRows> start_gather(const ops::Operand& x, const char*) const override {
        return std::make_unique<LateRows>(x, taken_);
    }

  private:
    class LateRows : public ComingRows {
      public:
        LateRows(ops::Operand x, const std::function<void()>& taken) : rows_(std::move(x)), taken_(taken) {}
        ops::Operand take() override {
            taken_();
            return rows_;
        }

      private:
        ops::Operand rows_;
        const std::function<void()>& taken_;
    };
    std::function<void()> taken_;
};

// Rows that are gathered travel while the gradients that need none are computed.
TEST(WeightWorkOrder, WaitsForGatheredRowsLast) {
    const ops::OpsContext context;
    testing::RandomTensors random(3);
    const at::Tensor dy = random.normal({5, 4}, at::kFloat), x = random.normal({5, 6}, at::kFloat);
    Sums sums;
    for (const Role role : {Role::Wq, Role::Wo, Role::Embedding}) sums.add(role, {4, 6}, at::kFloat);
    sums.add(Role::BiasQ, {4}, at::kFloat);
    const auto is_done = [&](Role role) { return !sums.gradients()[role]->empty; };
    int num_taken = 0;
    const LateAxis axis([&] {
        ++num_taken;
        EXPECT_TRUE(is_done(Role::Wo) && is_done(Role::BiasQ));
    });
    WeightWork work;
    work.add_lookup(Role::Embedding, x, at::arange(5, at::kLong) % 4, /*begin=*/0, axis);
    work.add_product(Role::Wq, dy, x, ops::kNoCasts, axis);
    work.add_product(Role::Wo, dy, x);
    work.add_row_sum(Role::BiasQ, dy);
    work.run(sums.gradients());
    EXPECT_EQ(num_taken, 2);
    EXPECT_TRUE(identical(sums.of(Role::Wq), sums.of(Role::Wo)));
    at::Tensor lookup = x.narrow(0, 0, 4).clone();
    lookup[0].add_(x[4]);
    EXPECT_TRUE(identical(sums.of(Role::Embedding), lookup));
}

}  // namespace
}  // namespace argosy::model

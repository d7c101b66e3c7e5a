// Sums of gradients in bf16: a layer computes each gradient in fp32 and adds it with one stochastic rounding,
// also where it computes some rows at a time.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "model/weight_work.h"
#include "ops/numerics.h"
#include "ops/ops_context.h"
#include "ops/planned_gpu.h"
#include "support/allocation_log.h"
#include "support/tensors.h"

namespace argosy::model {
namespace {

using testing::identical;

constexpr uint64_t kSeed = 5;

// The places of a unit's parameters, as far as the tests need them.
constexpr Place kTable{0, 1}, kNorm{1, 1}, kQkv{2, 3}, kQkvBias{5, 3}, kWo{8, 1}, kExperts{9, 1},
    kTwoLayers{10, 2};

/// The sums of some parameters, in fp32 or bf16.
class Sums {
  public:
    void add(Place place, std::vector<int64_t> shape, at::ScalarType type) {
        const int number = place.first;
        GradientSum& sum = sums_[number];
        sum.sum = at::empty(shape, type);
        if (std::cmp_greater_equal(number, gradients_.sums.size())) gradients_.sums.resize(number + 1);
        gradients_.sums[number] = &sum;
        if (type != at::kBFloat16) return;
        const int64_t length = shape.back();
        sum.rounding = {key_of(number), {.length = length, .stride = length}, &first_rounding()};
    }
    void start_microbatch(int64_t microbatch) {
        for (auto& [number, sum] : sums_) sum.start_microbatch(microbatch);
    }
    static ops::RoundingKey key_of(int number) {
        return ops::rounding_key(kSeed, std::to_string(number), ops::Rounded::Gradient);
    }

    const Gradients& gradients() const { return gradients_; }
    const std::map<int, GradientSum>& all() const { return sums_; }
    const at::Tensor& of(int number) const { return sums_.at(number).sum; }
    const at::Tensor& of(Place place) const { return of(place.first); }

  private:
    static const ops::FirstRounding& first_rounding() {
        static const ops::FirstRounding first(c10::kCPU);
        return first;
    }

    std::map<int, GradientSum> sums_;
    Gradients gradients_;
};

class RoundedGradients : public ::testing::Test {
  protected:
    static constexpr int64_t kTokens = 19, kDim = 12, kVocabulary = 30;

    static Sums make_sums(at::ScalarType type) {
        Sums sums;
        sums.add(kTable, {kVocabulary, kDim}, type);
        sums.add(kNorm, {kDim}, type);
        for (int i = 0; const int64_t rows : {20, 8, 8}) {
            sums.add({kQkv.first + i, 1}, {rows, kDim}, type);
            sums.add({kQkvBias.first + i, 1}, {rows}, type);
            ++i;
        }
        sums.add(kWo, {kDim, 20}, type);
        sums.add(kExperts, {3, 8, kDim}, type);
        sums.add({kTwoLayers.first, 1}, {3 * 4, kDim}, type);
        sums.add({kTwoLayers.first + 1, 1}, {3, 6, kDim}, type);
        return sums;
    }

    at::Tensor normal(at::IntArrayRef shape) { return random_.normal(shape, at::kBFloat16); }

    /// The work of one microbatch: all kinds, of single parameters and of joins.
    WeightWork work() {
        const at::Tensor dqkv = normal({kTokens, 36}), x = normal({kTokens, kDim});
        WeightWork work;
        work.add_product(kWo, normal({kTokens, kDim}), normal({kTokens, 20}));
        work.add_row_sum(kQkvBias, dqkv);
        const at::Tensor counts = at::tensor({11, 0, 8}, at::kLong);
        work.add_grouped_product(kExperts, normal({kTokens, 8}), x, counts);
        work.add_grouped_product(kTwoLayers, normal({kTokens, 10}), x, counts);
        work.add_product(kQkv, dqkv, x);
        work.add_value(kNorm, random_.normal({kDim}, at::kFloat));
        work.add_lookup(kTable, normal({kTokens, kDim}), at::arange(kTokens, at::kLong) * 7 % 13 + 4,
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
        std::map<int, at::Tensor> expected;
        for (int64_t microbatch = 0; microbatch < 3; ++microbatch) {
            WeightWork rounded = work(), wide = rounded;
            Sums alone = make_sums(at::kFloat);
            wide.run(alone.gradients());
            sums.start_microbatch(microbatch);
            rounded.run(sums.gradients());
            for (const auto& [number, gradient] : alone.all()) {
                at::Tensor& sum = expected[number];
                const at::Tensor total = sum.defined() ? sum.to(at::kFloat) + gradient.sum : gradient.sum;
                sum = ops::rounded_stochastically(total, {.length = total.numel()},
                                                  ops::rounding_number(0, microbatch), Sums::key_of(number));
                EXPECT_FALSE(sums.all().at(number).empty);
                EXPECT_TRUE(identical(sums.of(number), sum)) << "parameter " << number;
            }
        }
    }
}

// A GPU multiplies all groups at once, in bf16: only a part of the products is widened at a time.
TEST_F(RoundedGradients, AGpuWidensSomeGroupsAtATime) {
    constexpr int64_t kGroups = 64, kRows = 512, kColumns = 1024, kElements = kGroups * kRows * kColumns;
    const ops::PlannedGpu gpu(90);
    auto& memory = testing::AllocationLog::of<at::kMeta>();
    const auto narrow = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
    GradientSum sum{at::empty({kGroups * kRows, kColumns}, narrow)};
    sum.rounding = {Sums::key_of(0), {.length = kColumns, .stride = kColumns}, nullptr};
    WeightWork work;
    work.add_grouped_product({0, 1}, at::empty({100, kRows}, narrow), at::empty({100, kColumns}, narrow),
                             at::empty({kGroups}, narrow.dtype(at::kLong)));
    Gradients gradients{.sums = {&sum}};
    memory.start();
    work.run(gradients);
    const int64_t widened = 4 * ops::max_temporary_elements(sum.sum);
    EXPECT_LT(widened, 4 * kElements);
    EXPECT_LT(memory.peak_bytes(), 2 * kElements + widened + (1 << 20));
    EXPECT_FALSE(sum.empty);
}

TEST_F(RoundedGradients, GroupsHaveTheProductsOfTheirRows) {
    const at::Tensor dy = normal({kTokens, 10}), x = normal({kTokens, kDim});
    Sums sums = make_sums(at::kFloat);
    WeightWork work;
    work.add_grouped_product(kTwoLayers, dy, x, at::tensor({11, 0, 8}, at::kLong));
    work.run(sums.gradients());
    const at::Tensor first = sums.of(kTwoLayers.first).view({3, 4, kDim}),
                     second = sums.of(kTwoLayers.first + 1);
    for (const auto& [group, begin, count] : {std::tuple{0, 0, 11}, {1, 11, 0}, {2, 11, 8}}) {
        const at::Tensor product = at::matmul(dy.narrow(0, begin, count).t().to(at::kDouble),
                                              x.narrow(0, begin, count).to(at::kDouble));
        EXPECT_TRUE(testing::close(first[group], product.narrow(0, 0, 4), 1e-5)) << group;
        EXPECT_TRUE(testing::close(second[group], product.narrow(0, 4, 6), 1e-5)) << group;
    }
}

// 17 million elements are more than a processor computes at a time.
TEST_F(RoundedGradients, RowsAtATimeGiveTheSameBits) {
    constexpr int64_t kRows = 4200, kColumns = 4096, kFewTokens = 3;
    ASSERT_LT(WeightWork::rows_at_once(kRows, kColumns, at::empty({0})), kRows);
    const at::Tensor dy = normal({kFewTokens, kRows}), x = normal({kFewTokens, kColumns});
    const at::Tensor tokens = at::arange(kFewTokens, at::kLong) * 2000 + 50;
    Sums sums, whole;
    constexpr int64_t kGroups = 6;
    const at::Tensor counts = at::tensor({0, 1, 0, 0, 0, 2}, at::kLong), dy_of_groups = dy.narrow(1, 0, 800);
    sums.add(kExperts, {kGroups, 800, kColumns}, at::kBFloat16);
    whole.add(kExperts, {kGroups, 800, kColumns}, at::kFloat);
    for (const Place& place : {kWo, kTable}) {
        sums.add(place, {kRows, kColumns}, at::kBFloat16);
        whole.add(place, {kRows, kColumns}, at::kFloat);
    }
    WeightWork work;
    work.add_product(kWo, dy, x);
    work.add_grouped_product(kExperts, dy_of_groups, x, counts);
    work.add_lookup(kTable, x, tokens, /*begin=*/0, axis_);
    WeightWork same = work;
    work.run(sums.gradients());
    same.run(whole.gradients());
    ops::FirstRounding first(c10::kCPU);
    for (const Place& place : {kWo, kTable, kExperts}) {
        const at::Tensor expected = at::empty(whole.of(place).sizes(), at::kBFloat16);
        ops::add_rounded(expected, whole.of(place), /*accumulate=*/false,
                         {Sums::key_of(place.first), {.length = kColumns, .stride = kColumns}, &first});
        EXPECT_TRUE(identical(sums.of(place), expected)) << "parameter " << place.first;
    }
}

// Over many microbatches, the sum follows a sum in fp64, while a sum that is rounded to nearest stops to
// grow.
TEST_F(RoundedGradients, OfManyMicrobatchesFollowAnOracleInFp64) {
    constexpr int64_t kMicrobatches = 800, kRows = 16, kColumns = 24;
    Sums sums;
    sums.add(kWo, {kRows, kColumns}, at::kBFloat16);
    at::Tensor oracle = at::zeros({kRows, kColumns}, at::kDouble);
    at::Tensor nearest = at::zeros({kRows, kColumns}, at::kBFloat16);
    for (int64_t microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
        const at::Tensor dy = random_.normal({2, kRows}, at::kBFloat16, 0.1) + 1,
                         x = random_.normal({2, kColumns}, at::kBFloat16, 0.1) + 1;
        WeightWork work;
        work.add_product(kWo, dy, x);
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
    RecordProperty("error_stochastic", std::to_string(error(sums.of(kWo))));
    RecordProperty("error_nearest", std::to_string(error(nearest)));
    // Each of 800 roundings errs by at most 2^-7 of the sum so far.
    EXPECT_LT(error(sums.of(kWo)), 0.06);
    EXPECT_LT(std::abs(bias(sums.of(kWo))), 0.06 * 4 / std::sqrt(double{kRows * kColumns}));
    EXPECT_GT(error(nearest), 2 * error(sums.of(kWo)));
    EXPECT_GT(std::abs(bias(nearest)), 5 * std::abs(bias(sums.of(kWo))));
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
    constexpr Place kQ{2, 1}, kQBias{5, 1};
    Sums sums;
    for (const Place& place : {kQ, kWo, kTable}) sums.add(place, {4, 6}, at::kFloat);
    sums.add(kQBias, {4}, at::kFloat);
    const auto is_done = [&](Place place) { return !sums.gradients()[place][0]->empty; };
    int num_taken = 0;
    const LateAxis axis([&] {
        ++num_taken;
        EXPECT_TRUE(is_done(kWo) && is_done(kQBias));
    });
    WeightWork work;
    work.add_lookup(kTable, x, at::arange(5, at::kLong) % 4, /*begin=*/0, axis);
    work.add_product(kQ, dy, x, ops::kNoCasts, axis);
    work.add_product(kWo, dy, x);
    work.add_row_sum(kQBias, dy);
    work.run(sums.gradients());
    EXPECT_EQ(num_taken, 2);
    EXPECT_TRUE(identical(sums.of(kQ), sums.of(kWo)));
    at::Tensor lookup = x.narrow(0, 0, 4).clone();
    lookup[0].add_(x[4]);
    EXPECT_TRUE(identical(sums.of(kTable), lookup));
}

}  // namespace
}  // namespace argosy::model

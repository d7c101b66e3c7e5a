// Products of groups against a product for each group, in fp64 and with the functions for one matrix.
#include "ops/grouped.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <numeric>

#include "base/error.h"
#include "gpu/device.h"
#include "ops/matmul.h"
#include "ops/numerics.h"
#include "ops/ops_test.h"
#include "ops/planned_gpu.h"
#include "ops/work.h"

namespace argosy::ops {
namespace {

using Counts = std::vector<int64_t>;

const Counts kCounts[] = {{5}, {0, 3, 0, 17, 1, 0}, {0, 0, 0}, {64, 70, 33}, {100, 0, 0}};

int64_t sum_of(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

class GroupedTest : public OpsTest {
  protected:
    static constexpr int64_t kIn = 24, kOut = 40;

    static at::Tensor on_device(const Counts& counts) { return at::tensor(counts, placed(at::kLong)); }

    /// product(group, first row, number of rows) of each group, as one matrix or, of gradients, as a stack.
    template <class Product>
    static std::vector<at::Tensor> of_groups(const Counts& counts, const Product& product) {
        std::vector<at::Tensor> made;
        for (int64_t first = 0, group = 0; group < std::ssize(counts); first += counts[group++])
            made.push_back(product(group, first, counts[group]));
        return made;
    }

    /// The products of groups on a GPU in bf16 are LibTorch's.
    bool has_bits_of_one_product() const {
        return !gpu::holds(at::zeros({1}, placed(at::kFloat))) && GetParam().path == Path::Fused;
    }
};

TEST_P(GroupedTest, EachGroupMultipliesWithItsMatrix) {
    for (const Counts& counts : kCounts) {
        const int64_t rows = sum_of(counts), groups = std::ssize(counts);
        const at::Tensor x = normal({rows, kIn}), dy = normal({rows, kOut}), on = on_device(counts),
                         weight = normal({groups, kOut, kIn});
        const auto formula = [&](const auto& in) {
            return at::cat(of_groups(counts, [&](int64_t group, int64_t first, int64_t count) {
                return in[0].narrow(0, first, count).matmul(in[1][group].t());
            }));
        };
        const Differentiated oracle = differentiate(formula, {x, weight}, dy);
        EXPECT_TRUE(right(grouped_linear(x, weight, on), oracle.value));
        EXPECT_TRUE(right(grouped_linear(x, weight.view({-1, kIn}), on), oracle.value)) << "as one matrix";
        EXPECT_TRUE(right(grouped_input_gradient(dy, weight, on), oracle.gradients[0]));
        const at::Tensor sum = normal({groups, kOut, kIn}),
                         started = at::full(sum.sizes(), NAN, sum.options());
        const at::Tensor expected = sum.to(at::kDouble) + oracle.gradients[1];
        grouped_weight_gradient(sum, dy, x, on, /*accumulate=*/true);
        EXPECT_TRUE(right(sum, expected));
        grouped_weight_gradient(started, dy, x, on, /*accumulate=*/false);
        EXPECT_TRUE(right(started, oracle.gradients[1]));
    }
}

TEST_P(GroupedTest, LayersThatReadTheSameRows) {
    const Counts counts = {30, 0, 9};
    const at::Tensor x = normal({39, kIn}), dy = normal({39, kOut + 8}), on = on_device(counts),
                     first = normal({3, kOut, kIn}), second = normal({3, 8, kIn});
    EXPECT_TRUE(identical(grouped_linear(x, {first, second}, on),
                          at::cat({grouped_linear(x, first, on), grouped_linear(x, second, on)}, 1)));
    const at::Tensor expected =
        grouped_input_gradient(dy.narrow(1, 0, kOut).to(at::kDouble), first.to(at::kDouble), on) +
        grouped_input_gradient(dy.narrow(1, kOut, 8).to(at::kDouble), second.to(at::kDouble), on);
    EXPECT_TRUE(right(grouped_input_gradient(dy, {first, second}, on), expected));
}

TEST_P(GroupedTest, AProductHasTheBitsOfItsMatrixAlone) {
    if (!has_bits_of_one_product()) GTEST_SKIP() << "not the kernels for processors";
    const Counts counts = {64, 0, 70, 33};
    const at::Tensor x = normal({167, kIn}), dy = normal({167, kOut}), on = on_device(counts),
                     weight = normal({4, kOut, kIn}), sum = random_.normal({4, kOut, kIn}, at::kFloat);
    const auto y = of_groups(counts, [&](int64_t group, int64_t first, int64_t count) {
        return linear(x.narrow(0, first, count), weight[group]);
    });
    const auto dx = of_groups(counts, [&](int64_t group, int64_t first, int64_t count) {
        return linear_input_gradient(dy.narrow(0, first, count), weight[group]);
    });
    const at::Tensor expected = sum.clone();
    of_groups(counts, [&](int64_t group, int64_t first, int64_t count) {
        at::Tensor each = expected[group];
        linear_weight_gradient(each, dy.narrow(0, first, count), x.narrow(0, first, count), true);
        return each;
    });
    EXPECT_TRUE(identical(grouped_linear(x, weight, on), at::cat(y)));
    EXPECT_TRUE(identical(grouped_input_gradient(dy, weight, on), at::cat(dx)));
    grouped_weight_gradient(sum, dy, x, on, /*accumulate=*/true);
    EXPECT_TRUE(identical(sum, expected));
}

// Sums of gradients are fp32.
TEST_P(GroupedTest, TheSumOfGradientsMayBeWider) {
    const at::Tensor x = normal({12, kIn}), dy = normal({12, kOut}), on = on_device({4, 8});
    const at::Tensor sum = random_.normal({2, kOut, kIn}, accumulation_type(GetParam().type), 1e4);
    at::Tensor expected = at::zeros({2, kOut, kIn}, placed(at::kDouble));
    grouped_weight_gradient(expected, dy.to(at::kDouble), x.to(at::kDouble), on, /*accumulate=*/false);
    expected += sum.to(at::kDouble);
    grouped_weight_gradient(sum, dy, x, on, /*accumulate=*/true);
    EXPECT_TRUE(close(sum, expected, GetParam().type == at::kDouble ? 1e-12 : 1e-5));
}

TEST_P(GroupedTest, RefusesCountsOfOtherRows) {
    if (multiplies_groups_at_once(normal({1, kIn}), normal({1, kIn}))) GTEST_SKIP() << "they stay on the GPU";
    const at::Tensor x = normal({12, kIn}), weight = normal({2, kOut, kIn});
    for (const Counts& counts : {Counts{4, 7}, {4, 9}, {-1, 13}})
        EXPECT_THROW(grouped_linear(x, weight, on_device(counts)), Error);
    EXPECT_THROW(grouped_linear(x, weight, on_device({4, 4, 4})), Error) << "other groups";
}

TEST_P(GroupedTest, WorkIsThatOfAllRowsAlsoWithoutData) {
    const at::Tensor x = normal({50, kIn}), dy = normal({50, kOut}), weight = normal({4, kOut, kIn}),
                     on = on_device({50, 0, 0, 0});
    for (const bool without_data : {false, true}) {
        const auto placed_as = [&](const at::Tensor& t) { return without_data ? t.to(at::kMeta) : t; };
        std::vector<Work> noted;
        {
            const WorkObserver observer([&](const Work& work) { noted.push_back(work); });
            grouped_linear(placed_as(x), placed_as(weight), placed_as(on));
            grouped_input_gradient(placed_as(dy), placed_as(weight), placed_as(on));
            const at::Tensor sum = placed_as(weight).clone();
            grouped_weight_gradient(sum, placed_as(dy), placed_as(x), placed_as(on), true);
        }
        ASSERT_EQ(noted.size(), 3);
        for (const Work& work : noted) {
            EXPECT_EQ(work.kind, WorkKind::Product);
            EXPECT_EQ(work.type, GetParam().type);
            EXPECT_EQ(work.flops, 2.0 * 50 * kIn * kOut);
            EXPECT_EQ(work.bytes, (50 * (kIn + kOut) + 4 * kIn * kOut) * x.element_size());
        }
        EXPECT_EQ(noted[0].rows, 13) << "of a group on average";
        EXPECT_EQ(noted[2].terms, 13);
    }
}

ARGOSY_FOR_EACH_VARIANT(GroupedTest);

TEST(Grouped, ArePlannedForAGpuWithoutData) {
    const PlannedGpu gpu(90);
    const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
    const at::Tensor x = at::empty({50, 16}, options), dy = at::empty({50, 8}, options),
                     w = at::empty({3 * 4, 16}, options), counts = at::empty({3}, options.dtype(at::kLong)),
                     sum = at::empty({3 * 4, 16}, options.dtype(at::kFloat));
    EXPECT_EQ(grouped_linear(x, {w, w}, counts).sizes(), dy.sizes());
    EXPECT_EQ(grouped_input_gradient(dy, {w, w}, counts).sizes(), x.sizes());
    grouped_weight_gradient(sum, dy.narrow(1, 0, 4), x, counts, /*accumulate=*/true);
}

TEST(Grouped, RowsOfGroups) {
    const at::Tensor counts = at::tensor({3, 0, 4, 1}, at::kLong);
    EXPECT_EQ(rows_of_groups(counts, 8, 1, 2).first, 3);
    EXPECT_EQ(rows_of_groups(counts, 8, 1, 2).count, 4);
    EXPECT_EQ(rows_of_groups(counts, 8, 4, 0).first, 8);
    const at::Tensor unknown = counts.to(at::kMeta);
    EXPECT_EQ(rows_of_groups(unknown, 10, 1, 2).first, 2);
    EXPECT_EQ(rows_of_groups(unknown, 10, 1, 2).count, 5);
}

}  // namespace
}  // namespace argosy::ops

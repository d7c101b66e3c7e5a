// Properties of every op: it does not change its inputs, the same call gives the same bits on any number of
// threads, and results show inputs that are not finite. With tensors without data (meta), results and
// allocations are like those with data.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <set>

#include "gpu/device.h"
#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/expert_scores.h"
#include "ops/glu.h"
#include "ops/grouped.h"
#include "ops/matmul.h"
#include "ops/numerics.h"
#include "ops/ops_test.h"
#include "ops/orthogonal.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/routing.h"
#include "ops/stochastic_rounding.h"
#include "ops/sums.h"
#include "support/allocation_log.h"

namespace argosy::ops {
namespace {

using Tensors = std::vector<at::Tensor>;

/// One call: its inputs and all its results, accumulated sums included.
struct Call {
    std::string name;
    Tensors in;
    std::function<Tensors(const Tensors&)> run;
};

class ContractTest : public OpsTest {
  protected:
    static constexpr int64_t kDim = 48, kHidden = 31;

    std::vector<Call> calls(int64_t num_tokens = 66) {
        const at::Tensor rows = normal({num_tokens, kDim}), other = normal({num_tokens, kDim});
        const at::Tensor weight = normal({kHidden, kDim}), hidden = normal({num_tokens, kHidden});
        const at::Tensor other_hidden = normal({num_tokens, 5}), other_weight = normal({5, kDim});
        const at::Tensor scale = normal({kDim}), table = normal({kHidden, kDim});
        const at::Tensor tokens =
            at::arange(num_tokens, placed(at::kLong)) % (kHidden + 2) - 2;  // every row, and no row
        const auto type = accumulation_type(GetParam().type);
        const RopeTable rotation = make_rope_table({1, 0.5, 0.1, 0.01}, 1, num_tokens / 3, placed(type));
        const auto shape = AttentionShape::of_whole_sequences(3, num_tokens / 3, 8);
        const at::Tensor keys = normal({num_tokens, 16}), values = normal({num_tokens, 16});
        const AttentionOutput attended = attention(rows, keys, values, shape);
        const at::Tensor inverse_rms = rms_norm(rows, {scale, 1e-5}).inverse_rms;
        const SoftmaxSums sums = softmax_sums(hidden, tokens, 0);
        const at::Tensor wide_sum = random_.normal({num_tokens, kDim}, type);
        const at::Tensor router_logits = random_.normal({num_tokens, 16}, type),
                         dweights = random_.normal({num_tokens, 3}, type),
                         row_weights = router_logits.select(1, 0);
        const Router router{.num_experts = 16, .top_k = 3};
        const Routing routing = route(router_logits, router);
        const at::Tensor slots = normal({3 * num_tokens, kDim});
        return {
            {"linear", {rows, weight}, [](const auto& in) { return Tensors{linear(in[0], in[1])}; }},
            {"linear_input_gradient",
             {hidden, weight},
             [](const auto& in) { return Tensors{linear_input_gradient(in[0], in[1])}; }},
            {"linear_input_gradient of two layers",
             {hidden, weight, other_hidden, other_weight},
             [](const auto& in) {
                 return Tensors{linear_input_gradient(at::cat({in[0], in[2]}, 1), Stack{{in[1], in[3]}})};
             }},
            {"linear_weight_gradient",
             {weight, hidden, rows},
             [](const auto& in) {
                 at::Tensor sum = in[0].clone(), wide = in[0].to(at::kDouble, false, /*copy=*/true);
                 linear_weight_gradient(sum, in[1], in[2], /*accumulate=*/true);
                 linear_weight_gradient(wide, in[1], in[2], /*accumulate=*/true);
                 return Tensors{sum, wide};
             }},
            {"rms_norm",
             {rows, scale},
             [](const auto& in) {
                 auto [y, r] = rms_norm(in[0], {in[1], 1e-5});
                 return Tensors{y, r};
             }},
            {"add_linear",
             {hidden, rows, weight},
             [](const auto& in) { return Tensors{add_linear(in[0], in[1], in[2])}; }},
            {"write_scaled_product",
             {hidden, rows, weight},
             [](const auto& in) {
                 const at::Tensor out = at::empty_like(in[0]), alone = at::empty_like(in[0]);
                 write_scaled_product(out, 0.5, in[1], in[2].t(), -2, in[0]);
                 write_scaled_product(alone, 3, in[1], in[2].t());
                 return Tensors{out, alone};
             }},
            {"orthogonalized", {rows}, [](const auto& in) { return Tensors{orthogonalized(in[0], 2)}; }},
            {"rms_norm_backward",
             {other, rows, scale, inverse_rms},
             [](const auto& in) {
                 auto [dx, dw] = rms_norm_backward(in[0], in[1], {in[2], 1e-5}, in[3]);
                 return Tensors{dx, dw};
             }},
            {"rms_norm_backward_with_residual",
             {other, rows, scale, inverse_rms, other},
             [](const auto& in) {
                 auto [dx, dw] = rms_norm_backward(in[0], in[1], {in[2], 1e-5}, in[3], in[4]);
                 return Tensors{dx, dw};
             }},
            {"rope",
             {rows, rotation.cos, rotation.sin},
             [](const auto& in) {
                 const at::Tensor y = at::empty_like(in[0]), dx = at::empty_like(in[0]);
                 write_rope(y, in[0], {in[1], in[2]});
                 write_rope_backward(dx, in[0], {in[1], in[2]});
                 return Tensors{y, dx};
             }},
            {"swiglu", {rows}, [](const auto& in) { return Tensors{glu(in[0], Activation::Silu)}; }},
            {"geglu", {rows}, [](const auto& in) { return Tensors{glu(in[0], Activation::GeluTanh)}; }},
            {"swiglu_backward",
             {rows.narrow(1, 0, kDim / 2), other},
             [](const auto& in) { return Tensors{glu_backward(in[0], in[1], Activation::Silu)}; }},
            {"geglu_backward",
             {rows.narrow(1, 0, kDim / 2), other},
             [](const auto& in) { return Tensors{glu_backward(in[0], in[1], Activation::GeluTanh)}; }},
            {"weighted_glu",
             {rows, row_weights},
             [](const auto& in) { return Tensors{weighted_glu(in[0], in[1], Activation::Silu)}; }},
            {"weighted_glu_backward",
             {rows.narrow(1, 0, kDim / 2), other, row_weights},
             [](const auto& in) {
                 const auto found = weighted_glu_backward(in[0], in[1], in[2], Activation::Silu);
                 return Tensors{found.gate_up, found.weights};
             }},
            {"route",
             {router_logits},
             [router](const auto& in) {
                 const Routing found = route(in[0], router);
                 return Tensors{found.experts, found.weights, found.order, found.counts};
             }},
            {"route by groups with a bias",
             {router_logits},
             [](const auto& in) {
                 const Router by_groups{.num_experts = 16, .top_k = 3, .num_groups = 4, .top_groups = 2};
                 const Routing found = route(in[0], by_groups, in[0][0]);
                 return Tensors{found.experts, found.weights, found.order, found.counts};
             }},
            {"route_backward",
             {dweights, router_logits, routing.experts},
             [router](const auto& in) {
                 return Tensors{route_backward(in[0], in[1], {.experts = in[2]}, router)};
             }},
            {"score_shares, log_sum_exp and balance_backward",
             {router_logits, router_logits},
             [router](const auto& in) {
                 Router of_sigmoids = router;
                 of_sigmoids.score = Router::Score::Sigmoid;
                 return Tensors{score_shares(in[0], router), score_shares(in[0], of_sigmoids),
                                log_sum_exp(in[0]), balance_backward(in[1], 0.1, in[0], router),
                                balance_backward(in[1], 0.1, in[0], of_sigmoids)};
             }},
            {"permute",
             {rows, routing.order},
             [](const auto& in) { return Tensors{permute(in[0], in[1], 3)}; }},
            {"combine",
             {slots, routing.order},
             [](const auto& in) { return Tensors{combine(in[0], in[1], 3)}; }},
            {"attention",
             {rows, keys, values},
             [shape](const auto& in) {
                 const AttentionOutput output = attention(in[0], in[1], in[2], shape);
                 return Tensors{output.y, output.log_sum_exp};
             }},
            {"attention_backward",
             {other, rows, keys, values, attended.y, attended.log_sum_exp},
             [shape, seed = attended.seed, offset = attended.offset](const auto& in) {
                 const AttentionOutput output{in[4], in[5], seed, offset};
                 auto [dq, dk, dv] = attention_backward(in[0], in[1], in[2], in[3], output, shape);
                 return Tensors{dq, dk, dv};
             }},
            {"cross_entropy",
             {hidden, tokens},
             [](const auto& in) {
                 const auto found = softmax_sums(in[0], in[1], 0);
                 return Tensors{found.maxima, found.sums, cross_entropy_sum(found, in[1])};
             }},
            {"cross_entropy_gradient",
             {hidden, sums.maxima, sums.sums[0], tokens},
             [](const auto& in) {
                 at::Tensor logits = in[0].clone();
                 turn_into_cross_entropy_gradient(logits, {in[1], at::stack({in[2], in[2]})}, in[3], 0,
                                                  at::full({}, 0.1, in[1].options()));
                 return Tensors{logits};
             }},
            {"embedding",
             {table, tokens},
             [](const auto& in) { return Tensors{embedding(in[0], in[1], 0)}; }},
            {"add_embedding_gradient",
             {table, rows, tokens},
             [](const auto& in) {
                 at::Tensor sum = in[0].clone();
                 add_embedding_gradient(sum, in[1], in[2], 0);
                 return Tensors{sum};
             }},
            {"add_embedding_gradient_wider",
             {table.to(type), rows, tokens},
             [](const auto& in) {
                 at::Tensor sum = in[0].clone();
                 add_embedding_gradient(sum, in[1], in[2], 0);
                 return Tensors{sum};
             }},
            {"add_row_sum",
             {scale.to(type), rows},
             [](const auto& in) {
                 at::Tensor sum = in[0].clone();
                 add_row_sum(sum, in[1]);
                 return Tensors{sum};
             }},
            {"squared_norms",
             {wide_sum},
             [](const auto& in) { return Tensors{squared_norms(std::span(&in[0], 1))}; }},
        };
    }

    /// Calls that the other properties leave out.
    std::vector<Call> more_calls() {
        constexpr int64_t kTokens = 66;
        const at::Tensor rows = normal({kTokens, kDim}), hidden = normal({kTokens, 40}), bias = normal({40});
        const at::Tensor parts = normal({40, kDim}), joined = normal({kTokens, 3 * kDim});
        const at::Tensor tokens = at::arange(kTokens, placed(at::kLong)) % 40 - 2;
        const at::Tensor scale = normal({8}), heads = joined.narrow(1, kDim, kDim).view({kTokens, 6, 8});
        const at::Tensor inverse_rms = rms_norm(heads, {scale, 1e-5}).inverse_rms;
        const auto type = accumulation_type(GetParam().type);
        const RopeTable rotation = make_rope_table({1, 0.5, 0.1, 0.01}, 1, kTokens / 3, placed(type));
        const auto shape = AttentionShape::of_whole_sequences(3, kTokens / 3, 8);
        const at::Tensor stacks = normal({4, 40, kDim}),
                         counts = at::tensor({20, 0, 45, 1}, placed(at::kLong));
        const at::Tensor wide = random_.normal({6, 40}, at::kFloat), narrow = wide.to(at::kBFloat16);
        const at::Tensor factor = at::full({}, 0.1, placed(type));
        const auto stack = [](const at::Tensor& all) {
            return Stack{{all.narrow(0, 0, 8), all.narrow(0, 8, 32)}};
        };
        return {
            {"linear of two layers with biases",
             {rows, parts, bias},
             [stack](const auto& in) { return Tensors{linear(in[0], stack(in[1]), stack(in[2]))}; }},
            {"linear of joined layers with biases",
             {rows, parts, bias},
             [stack](const auto& in) {
                 Stack weight = stack(in[1]), biases = stack(in[2]);
                 weight.all = in[1];
                 biases.all = in[2];
                 return Tensors{linear(in[0], weight, biases)};
             }},
            {"add_linear with a bias",
             {hidden, rows, parts, bias},
             [](const auto& in) { return Tensors{add_linear(in[0], in[1], in[2], in[3])}; }},
            {"write_linear_input_gradient",
             {hidden, parts, joined},
             [](const auto& in) {
                 const at::Tensor out = at::empty_like(in[2]);
                 write_linear_input_gradient(out.narrow(1, kDim, kDim), in[0], Stack::of(in[1]));
                 return Tensors{out};
             }},
            {"linear_weight_gradient, the first",
             {hidden, rows},
             [](const auto& in) {
                 at::Tensor sum = at::zeros({40, kDim}, in[0].options());
                 linear_weight_gradient(sum, in[0], in[1], /*accumulate=*/false);
                 return Tensors{sum};
             }},
            {"grouped_linear",
             {rows, stacks, counts},
             [](const auto& in) {
                 return Tensors{grouped_linear(in[0], in[1], in[2]),
                                grouped_linear(in[0], {in[1], in[1]}, in[2])};
             }},
            {"grouped_input_gradient",
             {hidden, stacks, counts, joined.narrow(1, 0, 80)},
             [](const auto& in) {
                 return Tensors{grouped_input_gradient(in[0], in[1], in[2]),
                                grouped_input_gradient(in[3], {in[1], in[1]}, in[2])};
             }},
            {"grouped_weight_gradient",
             {stacks, hidden, rows, counts},
             [](const auto& in) {
                 const at::Tensor sum = in[0].clone(), first = at::empty_like(sum);
                 grouped_weight_gradient(sum, in[1], in[2], in[3], /*accumulate=*/true);
                 grouped_weight_gradient(first, in[1], in[2], in[3], /*accumulate=*/false);
                 return Tensors{sum, first};
             }},
            {"write_rms_norm_backward in views",
             {joined, joined, scale, inverse_rms},
             [](const auto& in) {
                 const at::Tensor dx = at::empty_like(in[0]);
                 const auto heads_of = [](const at::Tensor& x) {
                     return x.narrow(1, kDim, kDim).view({x.size(0), -1, 8});
                 };
                 const at::Tensor dw = write_rms_norm_backward(heads_of(dx), heads_of(in[1]).contiguous(),
                                                               heads_of(in[0]), {in[2], 1e-5}, in[3]);
                 return Tensors{dx, dw};
             }},
            {"attention and rope in views of a projection",
             {joined, rotation.cos, rotation.sin},
             [shape](const auto& in) {
                 const at::Tensor qkv = in[0].clone(), qk = qkv.narrow(1, 0, 2 * kDim);
                 write_rope(qk, qk, {in[1], in[2]});
                 const at::Tensor q = qk.narrow(1, 0, kDim), k = qk.narrow(1, kDim, kDim);
                 const AttentionOutput output = attention(q, k, qkv.narrow(1, 2 * kDim, kDim), shape);
                 auto [dq, dk, dv] =
                     attention_backward(output.y, q, k, qkv.narrow(1, 2 * kDim, kDim), output, shape);
                 return Tensors{output.y, output.log_sum_exp, dq, dk, dv};
             }},
            {"the steps of cross_entropy over ranks",
             {hidden, tokens, factor},
             [](const auto& in) {
                 SoftmaxSums sums = softmax_sums(in[0], in[1], 0),
                             none = softmax_sums(in[0].narrow(1, 0, 0), in[1], 0);
                 const at::Tensor maxima = sums.maxima.maximum(none.maxima);
                 raise_maxima(sums, maxima);
                 raise_maxima(none, maxima);
                 sums.sums.add_(none.sums);
                 at::Tensor logits = in[0].clone();
                 const SoftmaxSums all = turn_into_cross_entropy_gradient(logits, in[1], in[2]);
                 return Tensors{sums.maxima, sums.sums, logits, all.sums, target_is_largest(sums, in[1])};
             }},
            {"orthogonalized, wide",
             {parts.t()},
             [](const auto& in) { return Tensors{orthogonalized(in[0], 2)}; }},
            {"orthogonalized without rows",
             {rows.narrow(0, 0, 0)},
             [](const auto& in) { return Tensors{orthogonalized(in[0], 2)}; }},
            {"embedding without rows",
             {rows.narrow(0, 0, 0), tokens},
             [](const auto& in) { return Tensors{embedding(in[0], in[1], 0)}; }},
            {"squared_norms of several",
             {rows, hidden},
             [](const auto& in) { return Tensors{squared_norms(in)}; }},
            {"add_rounded",
             {narrow, wide},
             [](const auto& in) {
                 const FirstRounding first(in[0].device());
                 const at::Tensor sum = in[0].clone();
                 add_rounded(sum, in[1], /*accumulate=*/true, {{1, 2}, layout::SlabRows{0, 40, 50}, &first});
                 return Tensors{sum};
             }},
            {"rounded_stochastically",
             {wide},
             [](const auto& in) {
                 return Tensors{rounded_stochastically(in[0], layout::SlabRows{0, 40, 50}, 1, {1, 2})};
             }},
            {"make_rope_table",
             {rotation.cos},
             [](const auto& in) {
                 const RopeTable made = make_rope_table({1, 0.5, 0.1, 0.01}, 1, 22, in[0].options());
                 return Tensors{made.cos, made.sin};
             }},
        };
    }

    static Tensors without_data(const Tensors& tensors) {
        Tensors made;
        for (const at::Tensor& each : tensors) {
            made.push_back(at::empty_strided(each.sizes(), each.strides(), each.options().device(at::kMeta)));
        }
        return made;
    }

    /// LibTorch's ops, or ops of another suite, may treat NaN and threads differently.
    static bool is_product_or_attention(const Call& call) {
        return call.name.find("linear") != std::string::npos ||
               call.name.find("product") != std::string::npos ||
               call.name.find("attention") != std::string::npos;
    }

    /// Replaces one element of input `i`, in a row that counts.
    static bool all_finite(const Call& call, size_t i, int64_t column, double value) {
        Tensors in = call.in;
        in[i] = in[i].clone();
        at::Tensor row = in[i].dim() == 1 ? in[i] : in[i][std::min<int64_t>(7, in[i].size(0) - 1)];
        row[column % row.size(0)].fill_(value);
        const Tensors out = call.run(in);
        return std::all_of(out.begin(), out.end(),
                           [](const at::Tensor& each) { return each.isfinite().all().item<bool>(); });
    }
};

TEST_P(ContractTest, NonfiniteElementsShow) {
    for (const Call& call : calls()) {
        if (is_product_or_attention(call)) continue;
        for (size_t i = 0; i < call.in.size(); ++i) {
            if (!call.in[i].is_floating_point()) continue;
            for (const int64_t column : {7, 30}) {  // in a full vector, and in the remainder
                EXPECT_FALSE(all_finite(call, i, column, NAN)) << call.name << " hides NaN in input " << i;
            }
        }
        EXPECT_FALSE(all_finite(call, 0, 7, INFINITY)) << call.name << " hides infinity";
        EXPECT_TRUE(all_finite(call, 0, 7, 0.5)) << call.name;
    }
}

TEST_P(ContractTest, TheNumberOfThreadsDoesNotMatter) {
    if (GetParam().path == Path::Plain) GTEST_SKIP() << "LibTorch's operations";
    const int before = at::get_num_threads();
    for (const Call& call : calls(/*num_tokens=*/2049)) {
        if (is_product_or_attention(call)) continue;
        at::set_num_threads(1);
        const Tensors alone = call.run(call.in);
        for (const int threads : {2, 3, 5}) {
            at::set_num_threads(threads);
            const Tensors shared = call.run(call.in);
            for (size_t i = 0; i < alone.size(); ++i)
                EXPECT_TRUE(identical(shared[i], alone[i])) << call.name << i << " on " << threads;
        }
    }
    at::set_num_threads(before);
}

TEST_P(ContractTest, InputsDoNotChange) {
    for (const Call& call : calls()) {
        Tensors copies;
        for (const at::Tensor& each : call.in) copies.push_back(each.clone());
        call.run(call.in);
        for (size_t i = 0; i < copies.size(); ++i) {
            EXPECT_TRUE(identical(call.in[i], copies[i])) << call.name << " changed its input " << i;
        }
    }
}

TEST_P(ContractTest, TheSameCallGivesTheSameBits) {
    for (const Call& call : calls()) {
        const Tensors once = call.run(call.in);
        for (int repeat = 0; repeat < 3; ++repeat) {
            const Tensors again = call.run(call.in);
            for (size_t i = 0; i < once.size(); ++i)
                EXPECT_TRUE(identical(again[i], once[i])) << call.name << i;
        }
    }
}

TEST_P(ContractTest, AgreesWithTheCpu) {
    if (placed(at::kFloat).device().is_cpu()) return;  // there is nothing else to agree with
    for (const Call& call : calls()) {
        Tensors on_processor;
        for (const at::Tensor& each : call.in) on_processor.push_back(each.cpu());
        const Tensors found = call.run(call.in), expected = call.run(on_processor);
        for (size_t i = 0; i < expected.size(); ++i) {
            EXPECT_TRUE(found[i].is_cuda()) << call.name << i;
            EXPECT_EQ(found[i].scalar_type(), expected[i].scalar_type()) << call.name << i;
            // Either side may differ by the tolerance.
            EXPECT_TRUE(
                close(found[i].cpu().view(expected[i].sizes()), expected[i], 2 * GetParam().tolerance))
                << call.name << i;
        }
    }
}

TEST_P(ContractTest, TensorsWithoutDataGiveTheSameShapesAndTypes) {
    std::vector<Call> all = calls();
    for (Call& call : more_calls()) all.push_back(std::move(call));
    for (const Call& call : all) {
        SCOPED_TRACE(call.name);
        const Tensors expected = call.run(call.in), found = call.run(without_data(call.in));
        ASSERT_EQ(found.size(), expected.size());
        for (size_t i = 0; i < expected.size(); ++i) {
            EXPECT_TRUE(found[i].is_meta()) << i;
            EXPECT_EQ(found[i].sizes(), expected[i].sizes()) << i;
            EXPECT_EQ(found[i].scalar_type(), expected[i].scalar_type()) << i;
            if (gpu::holds(expected[i])) continue;  // LibTorch's attention on a GPU chooses its own strides
            EXPECT_EQ(found[i].strides(), expected[i].strides()) << i;
        }
    }
}

// So a dry run has the memory peaks of a real one.
TEST_P(ContractTest, TensorsWithoutDataAllocateLikeThoseOfAProcessor) {
    if (GetParam().path == Path::Plain) GTEST_SKIP() << "LibTorch's operations";
    if (gpu::holds(normal({1}))) GTEST_SKIP() << "tensors on a GPU";
    // LibTorch's kernels for processors convert numbers to another type in temporary tensors. No step adds
    // fp32 to fp64, or adds an embedding's gradient to bf16. A table of rotations is made once.
    const std::set<std::string> other_allocations = {"linear_weight_gradient", "add_embedding_gradient",
                                                     "make_rope_table"};
    auto &real = testing::AllocationLog::of<at::kCPU>(), &dry = testing::AllocationLog::of<at::kMeta>();
    std::vector<Call> all = calls();
    for (Call& call : more_calls()) all.push_back(std::move(call));
    for (const Call& call : all) {
        if (other_allocations.contains(call.name)) continue;
        const Tensors in = without_data(call.in);
        real.start();
        const Tensors expected = call.run(call.in);
        dry.start();
        const Tensors found = call.run(in);
        EXPECT_EQ(dry.sizes(), real.sizes()) << call.name;
        EXPECT_EQ(dry.peak_bytes(), real.peak_bytes()) << call.name;
        EXPECT_EQ(dry.current_bytes(), real.current_bytes()) << call.name;
    }
}

ARGOSY_FOR_EACH_VARIANT(ContractTest);

}  // namespace
}  // namespace argosy::ops

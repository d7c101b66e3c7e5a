// What holds of every op alike: it leaves its inputs as they are, and the same call gives the same bits.
#include <ATen/ops/tensor.h>

#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/matmul.h"
#include "ops/ops_test.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"
#include "ops/types.h"

namespace argosy::ops {
namespace {

using Tensors = std::vector<at::Tensor>;

/// One call: what goes in, and all that comes out, sums that grow included.
struct Call {
    const char* name;
    Tensors in;
    std::function<Tensors(const Tensors&)> run;
};

class ContractTest : public OpsTest {
  protected:
    static constexpr int64_t kTokens = 66, kDim = 48, kHidden = 31;

    std::vector<Call> calls() {
        const at::Tensor rows = normal({kTokens, kDim}), other = normal({kTokens, kDim});
        const at::Tensor weight = normal({kHidden, kDim}), hidden = normal({kTokens, kHidden});
        const at::Tensor scale = normal({kDim}), table = normal({kHidden, kDim});
        const at::Tensor tokens = random_.integers({kTokens}, -2, kHidden);
        const auto type = accumulation_type(GetParam().type);
        const RopeTable rotation = make_rope_table({1, 0.5, 0.1, 0.01}, kTokens / 3, type);
        const AttentionShape shape{3, kTokens / 3, 8};
        const at::Tensor keys = normal({kTokens, 16}), values = normal({kTokens, 16});
        const AttentionOutput attended = attention(rows, keys, values, shape);
        const at::Tensor inverse_rms = rms_norm(rows, scale, 1e-5).inverse_rms;
        const at::Tensor maxima = row_maxima(hidden), sums = softmax_sums(hidden, maxima, tokens, 0);
        return {
            {"linear", {rows, weight}, [](const auto& in) { return Tensors{linear(in[0], in[1])}; }},
            {"linear_input_gradient",
             {hidden, weight},
             [](const auto& in) { return Tensors{linear_input_gradient(in[0], in[1])}; }},
            {"add_linear_input_gradient",
             {rows, hidden, weight},
             [](const auto& in) {
                 at::Tensor sum = in[0].clone();
                 add_linear_input_gradient(sum, in[1], in[2]);
                 return Tensors{sum};
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
                 auto [y, r] = rms_norm(in[0], in[1], 1e-5);
                 return Tensors{y, r};
             }},
            {"rms_norm_backward",
             {other, rows, scale, inverse_rms},
             [](const auto& in) {
                 auto [dx, dw] = rms_norm_backward(in[0], in[1], in[2], in[3]);
                 return Tensors{dx, dw};
             }},
            {"rope",
             {rows, rotation.cos, rotation.sin},
             [](const auto& in) {
                 return Tensors{rope(in[0], {in[1], in[2]}), rope_backward(in[0], {in[1], in[2]})};
             }},
            {"swiglu", {rows, other}, [](const auto& in) { return Tensors{swiglu(in[0], in[1])}; }},
            {"swiglu_backward",
             {rows, other, rows},
             [](const auto& in) {
                 auto [dgate, dup] = swiglu_backward(in[0], in[1], in[2]);
                 return Tensors{dgate, dup};
             }},
            {"attention",
             {rows, keys, values},
             [shape](const auto& in) {
                 auto [y, log_sum_exp] = attention(in[0], in[1], in[2], shape);
                 return Tensors{y, log_sum_exp};
             }},
            {"attention_backward",
             {other, rows, keys, values, attended.y, attended.log_sum_exp},
             [shape](const auto& in) {
                 auto [dq, dk, dv] = attention_backward(in[0], in[1], in[2], in[3], {in[4], in[5]}, shape);
                 return Tensors{dq, dk, dv};
             }},
            {"cross_entropy",
             {hidden, tokens},
             [](const auto& in) {
                 const at::Tensor largest = row_maxima(in[0]);
                 const at::Tensor both = softmax_sums(in[0], largest, in[1], 0);
                 return Tensors{largest, both, cross_entropy_sum(both, in[1])};
             }},
            {"cross_entropy_gradient",
             {hidden, maxima, sums, tokens},
             [](const auto& in) {
                 return Tensors{cross_entropy_gradient(in[0], in[1], in[2], in[3], 0, 0.1)};
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
        };
    }
};

TEST_P(ContractTest, InputsStayAsTheyAre) {
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

ARGOSY_FOR_EACH_VARIANT(ContractTest);

}  // namespace
}  // namespace argosy::ops

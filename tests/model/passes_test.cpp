// What a layer launches on a GPU, in order: its matrix products, and what passes over memory between them.
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <regex>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "model/tiny_model.h"
#include "ops/attention.h"
#include "ops/ops_context.h"
#include "support/fake_gpus.h"
#include "support/work_log.h"

namespace argosy::model {
namespace {

/// LibTorch's operations that read and write no elements, or call another one that does.
constexpr const char* kWithoutAPass[] = {"aten::empty",      "aten::empty_like", "aten::empty_strided",
                                         "aten::zeros",      "aten::slice",      "aten::narrow",
                                         "aten::view",       "aten::t",          "aten::transpose",
                                         "aten::as_strided", "aten::unsqueeze",  "aten::expand"};

using Passes = std::vector<std::string>;

Passes names_of(const std::vector<std::string>& work) {
    Passes passes;
    for (const std::string& line : work) passes.push_back(line.substr(0, line.find(' ')));
    std::erase_if(passes,
                  [](const std::string& name) { return std::ranges::count(kWithoutAPass, name) > 0; });
    return passes;
}
Passes passes_of(const std::function<void()>& work) { return names_of(testing::record_work(work)); }

/// The number of casts that write both orders: the last arguments of the kernel are the address and the
/// stride of the row-major matrix, those of the column-major one, and the first row. An address is a star.
int64_t casts_in_both_orders(const std::vector<std::string>& work) {
    static const std::regex both("cast_to_float8.* \\* [0-9]+ \\* [0-9]+ 0");
    return std::ranges::count_if(work, [](const std::string& line) { return std::regex_match(line, both); });
}

/// The list with the first occurrence of `part` as one pass. The stand-in computes attention in several
/// steps.
Passes with_one_pass(Passes list, const Passes& part, const std::string& name) {
    const auto found = std::ranges::search(list, part);
    EXPECT_FALSE(found.empty()) << name;
    list.insert(list.erase(found.begin(), found.end()), name);
    return list;
}

/// Rows of all matrices are multiples of 16 bytes, so that kernels take whole packs.
ModelSpec small_spec() {
    ModelSpec spec = tiny_specs()[0];
    spec.dim = 64, spec.num_heads = 4, spec.head_dim = 16, spec.hidden_dim = 96;
    return spec;
}

class BlockOnGpu : public ::testing::Test {
  protected:
    struct OneGpu {
        OneGpu() {
            testing::fake_gpus().num_devices = 1;
            gpu::use(0);
        }
    } gpu_;
    const ops::OpsContext context_;
    const c10::InferenceMode no_autograd_;
    TinyModel model{small_spec(), at::kBFloat16, /*num_sequences=*/2, /*seq_len=*/16};
    const Block block{model.spec, /*layer=*/0, model.axis, model.context, model.experts, model.rope};
};

// The residual stream's additions are part of the products, forward, and of the norms, backward. In units of
// tokens * dim elements, the passes beside products and attention read and write 4 forward (two norms) and 8
// backward (two norms); before the products added the residual stream, forward was 7.
TEST_F(BlockOnGpu, PassesAreThese) {
    const Weights weights = model.weights(1);
    const at::Tensor x = model.random.normal({32, 64}, at::kBFloat16),
                     q = model.random.normal({32, 64}, at::kBFloat16),
                     k = model.random.normal({32, 32}, at::kBFloat16),
                     dy = model.random.normal({32, 64}, at::kBFloat16);
    const auto shape = ops::AttentionShape::of_whole_sequences(2, 16, 16);
    ops::AttentionOutput attended;
    const Passes attention = passes_of([&] { attended = ops::attention(q, k, k, shape); });
    const Passes attention_backward =
        passes_of([&] { ops::attention_backward(dy, q, k, k, attended, shape); });

    const std::string product = "cublasLtMatmul", zero = "aten::zero_", add = "aten::add_";
    Tape tape;
    at::Tensor y;
    const Passes forward =
        passes_of([&] { y = block.forward(weights, x, model.batch, RecomputeMode::None, tape); });
    EXPECT_EQ(with_one_pass(forward, attention, "attention"),
              (Passes{"rms_norm", product, "rope", "attention", product,  // with the residual stream
                      "rms_norm", product, "glu", product}));             // likewise

    WeightWork work;
    const Passes backward = passes_of([&] { block.backward_input(weights, dy, model.batch, tape, work); });
    EXPECT_EQ(with_one_pass(backward, attention_backward, "attention_backward"),
              (Passes{product, "glu_backward", product,       // down, gate and up
                      zero, "rms_norm_backward", "sum_rows",  // zeros: of the norm's weight
                      product, "attention_backward", "aten::copy_", "rope", "rope", product,  // copy: dv
                      zero, "rms_norm_backward", "sum_rows"}));
    EXPECT_EQ(
        passes_of([&] { work.run(model.gradients(1)); }),
        (Passes{product, zero, add, product, zero, add, product, product}));  // zeros and sums: of norms
}

// Each operand is cast once, for both of its products, and none is transposed. A cast is written in both
// orders only where both products follow: where recompute makes it again, forward writes it for the layer's
// product alone, and selective recompute for the weight's gradient alone. Norms, the activation and its
// gradient find their largest magnitudes; those of other operands, and of the weights, are passes.
TEST_F(BlockOnGpu, CastsEachOperandOnce) {
    Weights weights = model.weights(1);
    for (const Parameter& parameter : model.units[1])
        weights.recipes.push_back(parameter.is_projection ? ops::find_recipe("tensorwise") : nullptr);
    const at::Tensor x = model.random.normal({32, 64}, at::kBFloat16),
                     dy = model.random.normal({32, 64}, at::kBFloat16);
    struct Counts {
        int64_t casts, in_both_orders, magnitudes, transposes;
        bool operator==(const Counts&) const = default;
    };
    const auto counts_of = [](const std::function<void()>& calls) {
        const std::vector<std::string> work = testing::record_work(calls);
        const Passes passes = names_of(work);
        const auto count = [&](const char* name) { return std::ranges::count(passes, std::string(name)); };
        return Counts{count("cast_to_float8"), casts_in_both_orders(work), count("largest_magnitudes"),
                      count("transpose_bytes")};
    };
    constexpr int64_t kWeights = 4;  // q, k and v; o; gate and up; down
    for (const RecomputeMode mode : {RecomputeMode::None, RecomputeMode::Selective, RecomputeMode::Full}) {
        Tape tape;
        // not known: the largest magnitude of attention's output
        EXPECT_EQ(counts_of([&] { block.forward(weights, x, model.batch, mode, tape); }),
                  (Counts{kWeights + 4, mode == RecomputeMode::None ? 4 : 0, kWeights + 1, 0}));
        if (mode == RecomputeMode::Selective) {
            EXPECT_EQ(counts_of([&] { block.recompute(weights, model.batch, tape); }), (Counts{4, 0, 1, 0}));
        } else if (mode == RecomputeMode::Full) {  // the activation is for its weight's gradient alone
            EXPECT_EQ(counts_of([&] { block.recompute(weights, model.batch, tape); }),
                      (Counts{kWeights - 1 + 4, 3, kWeights - 1 + 1, 0}));
        }
        for (const ops::Operand& kept : {tape.attention.input, tape.attention.output, tape.feed_forward.input,
                                         tape.feed_forward.activation}) {
            EXPECT_EQ(kept.values.stride(0), 1) << "backward does not read the row-major order";
            EXPECT_FALSE(kept.other_order.defined());
        }
        WeightWork work;
        EXPECT_EQ(counts_of([&] { block.backward_input(weights, dy, model.batch, tape, work); }),
                  (Counts{kWeights + 4, 4, kWeights + 3, 0}));  // known: of gate and up
        EXPECT_EQ(counts_of([&] { work.run(model.gradients(1)); }), (Counts{0, 0, 0, 0}));
    }
}

}  // namespace
}  // namespace argosy::model

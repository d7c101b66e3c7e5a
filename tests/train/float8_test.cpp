// Comparison with torchao, whose results tests/reference/ recorded: casts bit for bit, and twenty steps of
// training with each recipe.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

#include "comm/mesh.h"
#include "ops/ops_context.h"
#include "support/reference.h"
#include "support/world.h"
#include "train/trainer.h"

namespace argosy::testing {
namespace {

using ops::Scaling;
using ops::SumOver;

const Reference& recorded() {
    static const Reference reference("float8");
    return reference;
}

at::Tensor bits_of(const at::Tensor& x) { return x.view(at::kByte); }

TEST(AgainstTorchao, CastsHaveItsBits) {
    const at::Tensor x = recorded().read("casts/x").to(at::kBFloat16);
    const std::tuple<const char*, Scaling, SumOver> scalings[] = {
        {"matrix", Scaling::Matrix, SumOver::Columns},
        {"line0", Scaling::Line, SumOver::Rows},
        {"line1", Scaling::Line, SumOver::Columns}};
    const std::tuple<const char*, at::ScalarType> types[] = {{"e4m3", at::ScalarType::Float8_e4m3fn},
                                                             {"e5m2", at::ScalarType::Float8_e5m2}};
    for (const auto& [name, scaling, summed] : scalings) {
        for (const auto& [type_name, type] : types) {
            for (const bool power : {false, true}) {
                const std::string key =
                    std::string("casts/") + name + "/" + type_name + "/" + (power ? "power" : "any");
                const ops::Operand found =
                    ops::cast(x, {type, scaling, power}, summed, ops::largest_magnitude(x));
                EXPECT_TRUE(bits_of(found.values).equal(recorded().read(key + "/values"))) << key;
                EXPECT_TRUE(found.scale.flatten().equal(recorded().read(key + "/scale"))) << key;
            }
        }
    }
}

TEST(AgainstTorchao, CastsOfBlocksHaveItsBits) {
    const at::Tensor x = recorded().read("casts/x").to(at::kBFloat16);
    for (const char* recipe : {"mxfp8_cublas", "mxfp8_cublas_rceil"}) {
        for (const SumOver summed : {SumOver::Rows, SumOver::Columns}) {
            const std::string key = std::string("casts/") + recipe + (summed == SumOver::Rows ? "/0" : "/1");
            const ops::Operand found = ops::cast(x, ops::find_recipe(recipe)->forward.left, summed);
            EXPECT_TRUE(bits_of(found.values).equal(recorded().read(key + "/values"))) << key;
            EXPECT_TRUE(bits_of(found.scale).equal(recorded().read(key + "/scale"))) << key;
        }
    }
}

class TrainingAgainstTorchao : public ::testing::TestWithParam<std::string> {
  protected:
    TrainingAgainstTorchao() : mesh_(layout::resolve({}, self().size()), self()) {}

    std::unique_ptr<train::Trainer> trainer() {
        train::TrainerOptions options{.spec = recorded().spec(),
                                      .model = {.precision = {at::kFloat, at::kFloat, at::kFloat}}};
        options.model.casts.recipe = ops::find_recipe(GetParam());
        if (options.model.casts.recipe != nullptr && GetParam().starts_with("mx"))
            options.model.casts.filter = {"output"};
        if (GetParam() == "blockwise") {
            options.spec.dim = 128, options.spec.hidden_dim = 256;
            options.spec.num_kv_heads = 4, options.spec.head_dim = 32;
        }
        options.model.seq_len = tokens_.size(2);
        options.model.microbatch_size = tokens_.size(1);
        options.model.seed = recorded().seed();
        return std::make_unique<train::Trainer>(options, mesh_);
    }

    train::StepBatch batch(int64_t step) const {
        train::StepBatch result;
        result.microbatches.push_back(
            {tokens_[step].flatten(), targets_[step].flatten(), tokens_.size(1), tokens_.size(2)});
        result.counted_tokens = targets_[step].ge(0).sum().item<int64_t>();
        result.job_counted_tokens = result.counted_tokens;
        return result;
    }

    at::Tensor tokens_ = recorded().read("tokens"), targets_ = recorded().read("targets");
    comm::Mesh mesh_;
};

/// Casts change these gradients by some per cent, and casts of another recipe by about as much.
TEST_P(TrainingAgainstTorchao, FirstGradients) {
    const auto run = trainer();
    run->step().forward_backward(batch(0));
    int num_compared = 0;
    for (const auto& parameter : run->model().parameters()) {
        for (const std::string& name : recorded().names(GetParam() + "/grad")) {
            if (parameter->spec().name != name + ".weight") continue;
            const at::Tensor expected = recorded().read(GetParam() + "/grad/" + name);
            const at::Tensor difference = parameter->gradient().sum - expected;
            EXPECT_LT(difference.norm().item<double>(), 2e-6 * expected.norm().item<double>()) << name;
            ++num_compared;
        }
    }
    EXPECT_EQ(num_compared, 2);
}

/// Sums in another order differ in the last bits, and later some element becomes another number of float8,
/// more of them in the wider model of blockwise: its norms differ by up to 1.2e-3.
TEST_P(TrainingAgainstTorchao, TwentySteps) {
    constexpr int64_t kEqualSteps = 3;
    const at::Tensor losses = recorded().read(GetParam() + "/losses"),
                     norms = recorded().read(GetParam() + "/grad_norms");
    const auto run = trainer();
    for (int64_t step = 0; step < tokens_.size(0); ++step) {
        const double tolerance = step < kEqualSteps ? 1e-6 : 5e-4;
        const double of_norm = step >= kEqualSteps && GetParam() == "blockwise" ? 3e-3 : tolerance;
        const auto result = run->step().update(run->step().forward_backward(batch(step)), /*lr=*/1e-3);
        EXPECT_NEAR(result.loss / losses[step].item<double>(), 1, tolerance) << "step " << step;
        EXPECT_NEAR(result.grad_norm / norms[step].item<double>(), 1, of_norm) << "step " << step;
    }
}

INSTANTIATE_TEST_SUITE_P(Recipes, TrainingAgainstTorchao,
                         ::testing::Values("float32", "tensorwise", "rowwise", "rowwise_with_gw_hp",
                                           "blockwise", "mxfp8_cublas", "mxfp8_cublas_rceil"),
                         [](const auto& recipe) { return recipe.param; });

}  // namespace
}  // namespace argosy::testing

// Compares Muon on one rank with torch.optim.Muon, whose updates are recorded in tests/reference, and with a
// plain loop in fp64.
#include "train/muon.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "comm/mesh.h"
#include "comm/recording.h"
#include "support/reference.h"
#include "support/tensors.h"
#include "support/world.h"

namespace argosy::train {
namespace {

constexpr double kRate = 0.02, kDecay = 0.1;
constexpr int kNumSteps = 12;

struct Variant {
    const char* name;
    MuonOptions options;
};
const Variant kVariants[] = {
    {"usual", {}},
    {"original",
     {.momentum = 0.8, .nesterov = false, .ns_steps = 3, .adjust_lr = MuonOptions::AdjustLr::Original}}};

/// A matrix on one rank, updated by Muon.
class OneMatrix {
  public:
    OneMatrix(const MuonOptions& options, const at::Tensor& start, int num_heads = 1, int num_matrices = 1)
        : spec_{.name = "layers.0.attention.wq.weight",
                .shape = start.sizes().vec(),
                .num_matrices = num_matrices,
                .num_heads = num_heads},
          weights_(start.clone()),
          gradient_(at::zeros_like(start)),
          mesh_({}, testing::self()),
          muon_(options,
                {{.name = spec_.name,
                  .rows = {.length = start.numel()},
                  .weights = weights_,
                  .compute = weights_,
                  .gradient = gradient_,
                  .weight_decay = kDecay,
                  .spec = &spec_}},
                mesh_) {}

    void update(int64_t number, const at::Tensor& gradient, double factor = 1) {
        gradient_.copy_(gradient);
        muon_.update({number, kRate, factor});
    }
    const at::Tensor& weights() const { return weights_; }
    at::Tensor momentum() const { return muon_.states().at(0).tensor; }

  private:
    layout::ParamSpec spec_;
    at::Tensor weights_, gradient_;
    comm::Mesh mesh_;
    Muon muon_;
    c10::InferenceMode guard_;  // as the program runs
};

class MuonOfTorch : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(MuonOfTorch, TakesTheSameSteps) {
    const testing::Reference reference("muon");
    const auto [shape, type] = GetParam();
    const bool wide = std::string(type) == "float64";
    const auto read = [&](const std::string& name) { return reference.read(shape + ("/" + name)); };
    for (const Variant& variant : kVariants) {
        SCOPED_TRACE(variant.name);
        const std::string folder = variant.name + ("/" + std::string(type));
        const at::Tensor expected = read(folder + "/weights"), gradients = read("gradients");
        OneMatrix matrix(variant.options, read("start").to(wide ? at::kDouble : at::kFloat));
        for (int64_t step = 0; step < kNumSteps; ++step) {
            matrix.update(step + 1, gradients[step]);
            // In bf16, products with sums in another order differ in their last bit. An update is 0.002 to
            // 0.02 of the weights.
            EXPECT_TRUE(testing::close(matrix.weights(), expected[step], wide ? 1e-12 : 5e-4)) << step;
        }
        EXPECT_TRUE(testing::close(matrix.momentum(), read(folder + "/momentum"), wide ? 1e-14 : 1e-6));
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, MuonOfTorch,
                         ::testing::Combine(::testing::Values("wide", "tall", "square", "row"),
                                            ::testing::Values("float32", "float64")),
                         [](const auto& drawn) {
                             return std::string(std::get<0>(drawn.param)) + "_" + std::get<1>(drawn.param);
                         });

/// Newton-Schulz steps on plain numbers. A matrix that is tall is computed as its transpose.
at::Tensor plainly_orthogonal(const at::Tensor& u, int num_steps) {
    const bool tall = u.size(0) > u.size(1);
    at::Tensor x = (tall ? u.t() : u) / std::max(u.norm().item<double>(), 1e-7);
    for (int step = 0; step < num_steps; ++step) {
        const at::Tensor square = x.matmul(x.t());
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square.matmul(square)).matmul(x);
    }
    return tall ? x.t() : x;
}

/// Three matrices of four rows, one below the other: heads, or those of experts.
void expect_steps_of_three(bool heads) {
    testing::RandomTensors random(7);
    constexpr int kCount = 3;
    const at::Tensor start = random.normal({12, 10}, at::kDouble);
    const MuonOptions options = {.adjust_lr = MuonOptions::AdjustLr::Spectral, .by_head = heads};
    OneMatrix matrix(options, start, heads ? kCount : 1, heads ? 1 : kCount);
    at::Tensor weights = start.clone(), momentum = at::zeros_like(start);
    for (int64_t step = 1; step <= kNumSteps; ++step) {
        const at::Tensor gradient = random.normal({12, 10}, at::kDouble);
        const double factor = 0.25;
        matrix.update(step, gradient, factor);
        momentum = 0.95 * momentum + 0.05 * factor * gradient;
        const at::Tensor direction = 0.05 * factor * gradient + 0.95 * momentum;
        weights = weights * (1 - kRate * kDecay);
        for (int i = 0; i < kCount; ++i) {
            const at::Tensor update = plainly_orthogonal(direction.narrow(0, 4 * i, 4), options.ns_steps);
            weights.narrow(0, 4 * i, 4).sub_(update * (kRate * std::sqrt(10.0)));
        }
        EXPECT_TRUE(testing::close(matrix.weights(), weights, 1e-12)) << step;
    }
}

TEST(Muon, TakesEachHeadForAMatrixIfTold) { expect_steps_of_three(/*heads=*/true); }

TEST(Muon, TakesEachMatrixOfAStack) { expect_steps_of_three(/*heads=*/false); }

TEST(Muon, MomentumInBFloat16IsRoundedStochastically) {
    testing::RandomTensors random(8);
    const at::Tensor start = random.normal({64, 32}, at::kFloat);
    const at::Tensor gradient = at::full_like(start, 1 + 1.0 / 512);  // between two numbers of bf16
    OneMatrix matrix({.momentum = 0, .state = at::kBFloat16}, start);
    matrix.update(1, gradient);
    const at::Tensor momentum = matrix.momentum();
    EXPECT_EQ(momentum.scalar_type(), at::kBFloat16);
    EXPECT_NEAR(momentum.to(at::kDouble).mean().item<double>(), 1 + 1.0 / 512, 2e-4);
    EXPECT_GT(momentum.to(at::kDouble).std().item<double>(), 0);
}

}  // namespace
}  // namespace argosy::train

// Compares AdamW with the textbook's loop over plain numbers in fp64.
#include "train/adamw.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/tensors.h"

namespace argosy::train {
namespace {

using ::argosy::testing::identical;

constexpr AdamWOptions kOptions{.beta1 = 0.8, .beta2 = 0.93, .eps = 1e-3};
constexpr double kDecay = 0.2;

/// One parameter, updated by the definition.
struct PlainAdamW {
    PlainAdamW(const at::Tensor& start, double decay)
        : weight_decay(decay), weights(values(start)), first(weights.size()), second(weights.size()) {}

    static std::vector<double> values(const at::Tensor& tensor) {
        const at::Tensor wide = tensor.to(at::kDouble).contiguous();
        return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
    }

    void step(double lr, const at::Tensor& gradient) {
        ++num_steps;
        const std::vector<double> g = values(gradient);
        for (size_t i = 0; i < weights.size(); ++i) {
            weights[i] -= lr * weight_decay * weights[i];
            first[i] = kOptions.beta1 * first[i] + (1 - kOptions.beta1) * g[i];
            second[i] = kOptions.beta2 * second[i] + (1 - kOptions.beta2) * g[i] * g[i];
            const double mean = first[i] / (1 - std::pow(kOptions.beta1, num_steps));
            const double square = second[i] / (1 - std::pow(kOptions.beta2, num_steps));
            weights[i] -= lr * mean / (std::sqrt(square) + kOptions.eps);
        }
    }

    double weight_decay;
    std::vector<double> weights, first, second;
    int num_steps = 0;
};

OptimizedParameter parameter(const at::Tensor& weights, const at::Tensor& gradient, bool decay) {
    return {.name = "layers.0.attention.wq.weight",
            .rows = {.length = weights.numel()},
            .weights = weights,
            .compute = weights,
            .gradient = gradient,
            .weight_decay = decay ? kDecay : 0};
}

/// A matrix that decays and a vector that does not, with new gradients at every step.
struct Parameters {
    explicit Parameters(at::ScalarType type)
        : matrix(random.normal({9, 7}, type)),
          vector(random.normal({5}, type)),
          matrix_gradient(random.normal({9, 7}, type)),
          vector_gradient(random.normal({5}, type)),
          optimizer(kOptions,
                    {parameter(matrix, matrix_gradient, true), parameter(vector, vector_gradient, false)}) {}

    void draw_gradients() {
        matrix_gradient.copy_(random.normal({9, 7}, at::kDouble));
        vector_gradient.copy_(random.normal({5}, at::kDouble));
    }

    testing::RandomTensors random{5};
    at::Tensor matrix, vector, matrix_gradient, vector_gradient;
    AdamW optimizer;
};

class AdamWTest : public ::testing::TestWithParam<at::ScalarType> {
  protected:
    void expect_equal(const at::Tensor& found, const PlainAdamW& expected) const {
        const double tolerance = GetParam() == at::kDouble ? 1e-13 : 2e-6;
        const at::Tensor reference = at::tensor(expected.weights, at::kDouble).view(found.sizes());
        EXPECT_TRUE(testing::close(found, reference, tolerance));
    }
    c10::InferenceMode guard_;  // as the program runs
};

TEST_P(AdamWTest, FollowsTheDefinition) {
    Parameters parameters(GetParam());
    PlainAdamW matrix(parameters.matrix, kDecay), vector(parameters.vector, 0);
    for (int step = 1; step <= 12; ++step) {
        SCOPED_TRACE(step);
        const double lr = 0.3 / step;
        parameters.draw_gradients();
        const double gradient_factor = 0.5 * step;
        parameters.optimizer.update({step, lr, gradient_factor});
        matrix.step(lr, parameters.matrix_gradient.to(at::kDouble) * gradient_factor);
        vector.step(lr, parameters.vector_gradient.to(at::kDouble) * gradient_factor);
        expect_equal(parameters.matrix, matrix);
        expect_equal(parameters.vector, vector);
    }
}

TEST_P(AdamWTest, UpdatesInPlaceAndLeavesGradientsAlone) {
    Parameters parameters(GetParam());
    const void* place = parameters.matrix.data_ptr();
    const at::Tensor before = parameters.matrix.clone(), gradient = parameters.matrix_gradient.clone();
    parameters.optimizer.update({1, 0.1, 1});
    EXPECT_EQ(parameters.matrix.data_ptr(), place);
    EXPECT_FALSE(identical(parameters.matrix, before));
    EXPECT_TRUE(identical(parameters.matrix_gradient, gradient));
}

TEST_P(AdamWTest, MomentsHaveTheAccumulationTypeUnlessGiven) {
    const Parameters parameters(GetParam());
    for (const State& state : parameters.optimizer.states())
        EXPECT_EQ(state.tensor.scalar_type(), GetParam()) << state.name;
}

TEST_P(AdamWTest, OneGroupMayBeEmpty) {
    testing::RandomTensors random(6);
    const at::Tensor weights = random.normal({3}, GetParam()), gradient = random.normal({3}, GetParam());
    for (const bool decay : {false, true}) {
        PlainAdamW expected(weights, decay ? kDecay : 0);
        AdamW optimizer(kOptions, {parameter(weights, gradient, decay)});
        optimizer.update({1, 0.1, 1});
        expected.step(0.1, gradient);
        expect_equal(weights, expected);
    }
}

INSTANTIATE_TEST_SUITE_P(Types, AdamWTest, ::testing::Values(at::kFloat, at::kDouble),
                         [](const auto& type) { return std::string(c10::toString(type.param)); });

}  // namespace
}  // namespace argosy::train

// An optimizer that nothing in lib knows: it takes the matrices of layers, keeps their momentum, and steps
// along it with the length 1 in the Frobenius norm of the whole matrix, whose parts are on several ranks.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include <memory>
#include <utility>
#include <vector>

#include "ops/numerics.h"
#include "train/optimizer.h"

namespace argosy::testing {

class WholeNorm : public train::Optimizer {
  public:
    WholeNorm(std::vector<train::OptimizedParameter> parameters, comm::Mesh& mesh)
        : parameters_(std::move(parameters)),
          parts_(mesh.group(
              {layout::Axis::Replicate, layout::Axis::Shard, layout::Axis::Context, layout::Axis::Tensor})) {
        for (const auto& each : parameters_) {
            const at::ScalarType type = ops::accumulation_type(each.weights.scalar_type());
            momenta_.push_back(at::zeros_like(each.weights, type));
        }
    }

    void update(const train::Update& update) override {
        if (parameters_.empty()) return;
        std::vector<at::Tensor> squares;
        for (size_t i = 0; i < parameters_.size(); ++i) {
            const at::Tensor gradient = ops::widened(parameters_[i].gradient);
            momenta_[i].mul_(0.9).add_(gradient, update.gradient_factor);
            squares.push_back(momenta_[i].square().sum() * (parameters_[i].owned ? 1 : 0));
        }
        const at::Tensor all = at::stack(squares);
        parts_.run({.kind = comm::OpKind::AllReduce, .out = all, .in = all});
        for (size_t i = 0; i < parameters_.size(); ++i) {
            const auto& [weights, compute] = std::tie(parameters_[i].weights, parameters_[i].compute);
            const double lr = update.lr * parameters_[i].lr_factor;
            weights.mul_(1 - lr * parameters_[i].weight_decay);
            weights.sub_(momenta_[i] / (all[static_cast<int64_t>(i)].sqrt() + 1e-30) * lr);
            if (!compute.is_same(weights)) compute.copy_(weights);
        }
    }

    std::vector<train::State> states() const override {
        std::vector<train::State> states;
        for (size_t i = 0; i < momenta_.size(); ++i) states.push_back({"momentum", i, momenta_[i]});
        return states;
    }

  private:
    std::vector<train::OptimizedParameter> parameters_;
    comm::Communicator& parts_;
    std::vector<at::Tensor> momenta_;
};

inline train::OptimizerChoice whole_norm() {
    return {[](const layout::ParamSpec& spec) { return spec.kind == layout::ParameterKind::Matrix; },
            [](auto parameters, comm::Mesh& mesh) {
                return std::make_unique<WholeNorm>(std::move(parameters), mesh);
            }};
}

}  // namespace argosy::testing

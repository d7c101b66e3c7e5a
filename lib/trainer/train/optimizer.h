// The interface of optimizers. An optimizer takes some of this rank's shards of parameters, keeps tensors of
// state beside them, and updates them. Checkpoints, plans and conversions know the states by name only.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "layout/param_spec.h"

namespace argosy::train {

/// This rank's shard of one parameter. REQUIRES: the tensors are contiguous.
struct OptimizedParameter {
    std::string name;         // names its states and seeds its rounding
    layout::SlabRows rows;    // the elements of the whole parameter that this shard has
    at::Tensor weights;       // fp64, fp32 or bf16
    at::Tensor compute;       // the weights in the compute type; the tensor `weights` if the types agree
    at::Tensor gradient;      // fp64 for fp64 weights, else fp32 or bf16
    double weight_decay = 0;  // the share of the weights that an update with a learning rate of 1 takes away
    double lr_factor = 1;     // of the learning rate
    const layout::ParamSpec* spec = nullptr;  // of the whole parameter
    /// Exactly one of the ranks with the same elements counts them in norms. For a tied table on two pipeline
    /// ranks that is one of the first.
    bool owned = true;
};

/// One update of all parameters.
struct Update {
    int64_t number = 1;  // counts from 1, without skipped updates
    double lr = 0;
    double gradient_factor = 1;  // of the gradients, which do not change
};

/// A tensor that an optimizer keeps of one parameter, with the sizes of the shard. The name tells the tensors
/// of a parameter apart.
struct State {
    std::string name;
    size_t parameter;  // its number among those that the optimizer was given
    at::Tensor tensor;
};

/// An optimizer owns its states; the caller owns all other tensors. The optimizer chooses the types and the
/// first values of the states, and keeps nothing else between updates.
class Optimizer {
  public:
    virtual ~Optimizer() = default;
    /// Changes weights and compute in place. COLLECTIVE over the mesh, if the optimizer was given one.
    virtual void update(const Update& update) = 0;
    /// In the order of the parameters; the same tensors at all times.
    virtual std::vector<State> states() const = 0;
};

/// Chooses the parameters of an optimizer and makes it, also on a rank that has none of them. `mesh` outlives
/// the optimizer.
struct OptimizerChoice {
    std::function<bool(const layout::ParamSpec&)> takes;
    std::function<std::unique_ptr<Optimizer>(std::vector<OptimizedParameter> parameters, comm::Mesh& mesh)>
        make;
    /// COLLECTIVE as `make`, and called before the model takes memory: makes the groups over which the
    /// optimizer of these parameters communicates, with their connections between GPUs. Null: the model has
    /// made them.
    std::function<void(const std::vector<const layout::ParamSpec*>& specs, comm::Mesh& mesh)> open_groups =
        nullptr;
};

}  // namespace argosy::train

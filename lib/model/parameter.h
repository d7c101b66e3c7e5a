// The parameters of a model as its layers see them: by role. A layer never asks where a weight lies or how it
// is cut; it gets the piece that it is to compute with, and adds gradients to the sums that it is given.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string>
#include <vector>

#include "layout/param_spec.h"
#include "model/model_spec.h"

namespace argosy::model {

enum class Role {
    Embedding,
    AttentionNorm,
    Wq,
    Wk,
    Wv,
    BiasQ,
    BiasK,
    BiasV,
    QNorm,
    KNorm,
    Wo,
    FfnNorm,
    Gate,
    Up,
    Down,
    FinalNorm,
    Output,
};
inline constexpr int kNumRoles = static_cast<int>(Role::Output) + 1;

template <class T>
class ByRole {
  public:
    T& operator[](Role role) { return values_[static_cast<int>(role)]; }
    const T& operator[](Role role) const { return values_[static_cast<int>(role)]; }

  private:
    std::array<T, kNumRoles> values_{};
};

/// Undefined where a layer has no such parameter.
using Weights = ByRole<at::Tensor>;

/// A gradient that grows: the first product is written, later ones are added.
struct GradientSum {
    at::Tensor sum;
    bool empty = true;
};
using Gradients = ByRole<GradientSum*>;

struct Parameter {
    Role role;
    layout::ParamSpec spec;  // without splits: those are parallel's to add
};

/// The parameters of a model's units in the order of the forward pass: the embedding, each block, the head. A
/// tied head names the embedding's table as its Output.
std::vector<std::vector<Parameter>> unit_parameters(const ModelSpec& spec);

/// What people call these units: "embedding", "layers.0", ..., "head".
std::vector<std::string> unit_names(const ModelSpec& spec);

/// Elements of all parameters together, a tied table once.
int64_t num_parameters(const ModelSpec& spec);

}  // namespace argosy::model

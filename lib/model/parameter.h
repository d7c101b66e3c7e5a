// The parameters of a model as its layers see them: by role. A layer never asks where a weight lies or how it
// is cut; it gets the piece that it is to compute with, and adds gradients to the sums that it is given.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layout/param_spec.h"
#include "model/model_spec.h"
#include "ops/matmul.h"

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

/// Parameters that meet the same input: one product serves for all where they lie one behind the other.
enum class Join { Qkv, QkvBias, GateUp };
inline constexpr int kNumJoins = static_cast<int>(Join::GateUp) + 1;

/// In the order in which they lie.
std::span<const Role> roles_of(Join join);
/// The one that the role belongs to, if any.
std::optional<Join> join_of(Role role);

template <class Key, int kNumKeys, class T>
class ByKey {
  public:
    T& operator[](Key key) { return values_[static_cast<int>(key)]; }
    const T& operator[](Key key) const { return values_[static_cast<int>(key)]; }

  private:
    std::array<T, kNumKeys> values_{};
};
template <class T>
using ByRole = ByKey<Role, kNumRoles, T>;

/// The parameters of each join as one tensor; undefined where they do not lie one behind the other.
using Joined = ByKey<Join, kNumJoins, at::Tensor>;

/// Undefined where a layer has no such parameter.
struct Weights : ByRole<at::Tensor> {
    Joined joined = {};

    /// Without parts where the layer has no such parameters.
    ops::Stack stack(Join join) const;
};

/// A gradient that grows: the first product is written, later ones are added.
struct GradientSum {
    at::Tensor sum;
    bool empty = true;
};
struct Gradients : ByRole<GradientSum*> {
    Joined joined = {};  // of the sums
};

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

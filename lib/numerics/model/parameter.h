// The parameters of a model as its layers see them: by role. A layer does not know how a weight is sharded.
// The caller passes the part of the weight that the layer needs, and the sums to which the layer adds
// gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layout/param_spec.h"
#include "model/model_spec.h"
#include "ops/matmul.h"
#include "ops/stochastic_rounding.h"

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
    BiasO,
    FfnNorm,
    Gate,
    Up,
    BiasGate,
    BiasUp,
    Down,
    BiasDown,
    FinalNorm,
    Output,
};
inline constexpr int kNumRoles = static_cast<int>(Role::Output) + 1;

/// A join is a group of parameters that are applied to the same input. If they are adjacent in memory, one
/// matrix product computes all of them.
enum class Join { Qkv, QkvBias, GateUp, GateUpBias };
inline constexpr int kNumJoins = static_cast<int>(Join::GateUpBias) + 1;

/// The roles of a join, in their order in memory.
std::span<const Role> roles_of(Join join);
/// The join that contains the role, if any.
std::optional<Join> join_of(Role role);

/// The layers whose weights these are, for plans: "wo", "wq, wk, wv". Empty for a norm.
const char* name_of(Role role);
const char* name_of(Join join);

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

/// The parameters of each join as one tensor; undefined if the parameters are not adjacent in memory.
using Joined = ByKey<Join, kNumJoins, at::Tensor>;

/// A layer's weights by role; an entry is undefined if the layer has no such parameter.
struct Weights : ByRole<at::Tensor> {
    Joined joined = {};
    /// How the products of a matrix cast their operands; the same for all of a join.
    ByRole<const ops::Recipe*> recipes = {};  // null: they do not cast
    ByRole<at::Tensor> scales = {};           // of matrices in float8; the same for all of a join

    /// The weights of a join, for ops/matmul.h. The stack has no parts if the layer has no such parameters.
    ops::Stack stack(Join join) const;
    ops::Stack stack(Role role) const;
    const ops::Recipe& recipe(Role role) const {
        return recipes[role] == nullptr ? ops::kNoCasts : *recipes[role];
    }
    const ops::Recipe& recipe(Join join) const { return recipe(roles_of(join)[0]); }

  private:
    ops::Stack with_casts(ops::Stack stack, Role role) const;
};

/// A sum of gradients of one parameter: the first gradient is written, later ones are added. A sum in bf16 is
/// rounded stochastically: each gradient is computed in fp32 and added with one rounding.
struct GradientSum {
    at::Tensor sum;
    bool empty = true;                              // whether the next gradient overwrites `sum`
    std::optional<ops::SumRounding> rounding = {};  // of a sum in bf16

    /// Selects the random bits for the gradients of a microbatch, which come next. Called again for the same
    /// microbatch, does nothing.
    void start_microbatch(int64_t microbatch);
    /// Adds rows from `first_row` on of the next gradient, in fp32. REQUIRES: the sum is in bf16.
    void add_rounded(const at::Tensor& rows, int64_t first_row = 0) const;
    /// Marks the next gradient as added.
    void count_gradient();
};
struct Gradients : ByRole<GradientSum*> {
    Joined joined = {};  // the sums of each join as one tensor
};

/// A parameter of a unit, with what everyone else needs to know of it.
struct Parameter {
    Role role;
    layout::ParamSpec spec;  // has no cuts yet: parallel::place_parameters() adds them
    /// The dim that the tensor axis cuts. None: every rank of the axis has the whole parameter, reads it for
    /// its own rows or heads, and so computes a part of its gradient.
    std::optional<int> tensor_dim = std::nullopt;
    /// The largest number of parts of that cut. More ranks share parts, and each computes a part of their
    /// gradients.
    int64_t max_parts = std::numeric_limits<int64_t>::max();
    /// The matrix of a linear layer, whose products may cast their operands.
    bool is_projection = false;
};

/// The parameters of a model's units in the order of the forward pass: the embedding, each block, the head.
/// The Output of a tied head has the name of the embedding's table.
std::vector<std::vector<Parameter>> unit_parameters(const ModelSpec& spec);

/// The names of a model's units: "embedding", "layers.0", ..., "head".
std::vector<std::string> unit_names(const ModelSpec& spec);

/// The number of elements of all parameters together; a tied table counts once.
int64_t num_parameters(const ModelSpec& spec);

}  // namespace argosy::model

// The parameters of a model as its layers declare and see them: by place in their unit. A layer does not know
// how a weight is sharded. The caller passes the part of the weight that the layer needs, and the sums to
// which the layer adds gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "layout/param_spec.h"
#include "ops/matmul.h"
#include "ops/stochastic_rounding.h"

namespace argosy::model {

/// The place of a parameter in its unit, or of a join: of adjacent parameters that are applied to the same
/// input. If a join's parameters are adjacent in memory too, one matrix product computes all of them.
struct Place {
    int first = -1, count = 0;  // numbers in the unit; none: the layer has no such parameter
    const char* layers = "";    // whose weights these are, in plans: "wo", "wq, wk, wv"; empty for a norm

    bool is_join() const { return count > 1; }
    explicit operator bool() const { return count > 0; }
    bool operator==(const Place& other) const { return first == other.first && count == other.count; }
};

/// A parameter of a unit, with what everyone else needs to know of it.
struct Parameter {
    layout::ParamSpec spec;  // has no cuts yet: parallel::place_parameters() adds them
    /// The dim that the tensor axis cuts. None: every rank of the axis has the whole parameter, reads it for
    /// its own rows or heads, and so computes a part of its gradient.
    std::optional<int> tensor_dim = std::nullopt;
    /// The largest number of parts of that cut. More ranks share parts, and each computes a part of their
    /// gradients.
    int64_t max_parts = std::numeric_limits<int64_t>::max();
    /// Each rank of the tensor axis reads all of it, for its own rows, and computes their whole part of the
    /// gradient. REQUIRES: no tensor_dim.
    bool reads_own_rows = false;
    /// The matrix of a linear layer, whose products may cast their operands.
    bool is_projection = false;
    /// The table of the embedding, also where it is the matrix of a tied head.
    bool is_table = false;
    /// The share of its elements by which a token is multiplied: none of a table that is looked up.
    double multiplied = 1;
    /// The place of its join, or its own.
    Place place = {};
    /// A set is the parameters of a unit that are sharded over the same axes, and are gathered and reduced
    /// together; `set` is its number in the unit, from 0, without gaps. A join lies in one set, a table in 0.
    int set = 0;
};

/// Collects the parameters of a unit, which its layers declare.
class Unit {
  public:
    /// `prefix` begins the names: "layers.0.".
    explicit Unit(std::string prefix = "") : prefix_(std::move(prefix)) {}

    /// Declares parameters that are applied to the same input, or one. `layers` as in Place.
    Place add(std::vector<Parameter> parameters, const char* layers = "");
    const std::vector<Parameter>& parameters() const { return parameters_; }

  private:
    std::string prefix_;
    std::vector<Parameter> parameters_;
};

/// The matrix of a linear layer, [outputs, inputs]. The tensor axis cuts the dim `cut`; `deviation` is that
/// of the initial values.
Parameter projection(std::string name, int64_t outputs, int64_t inputs, int cut, double deviation);
inline constexpr int kOutputs = 0, kInputs = 1;
/// The same, for a layer that computes the rank's own rows, whose products do not cast their operands.
Parameter whole_projection(std::string name, int64_t outputs, int64_t inputs, double deviation);
/// Deeper layers start with smaller additions to the residual stream.
inline constexpr double kDefaultDeviation = 0.02;
double residual_deviation(int64_t layer);
/// A vector that every rank of the tensor axis has; its elements start with `value`.
Parameter vector(std::string name, int64_t size, double value);
/// A vector of outputs that the tensor axis cuts, such as their bias.
Parameter cut_vector(std::string name, int64_t size, double value);

/// The joins of a unit as one tensor each, by the number of their first parameter; missing if the parameters
/// are not adjacent in memory.
using Joined = std::map<int, at::Tensor>;

/// A layer's weights.
struct Weights {
    std::vector<at::Tensor> tensors = {};  // of each parameter of the unit
    Joined joined = {};
    /// How the products of a matrix cast their operands; the same for all of a join. Null: they do not cast.
    std::vector<const ops::Recipe*> recipes = {};
    std::vector<at::Tensor> scales = {};  // of matrices in float8; the same for all of a join
    at::Tensor router_bias = {};          // [experts], wide: added to scores for the choice; undefined: none

    /// A single parameter; undefined if the layer has no such parameter.
    at::Tensor operator[](Place place) const;
    /// The weights of a place, for ops/matmul.h. The stack has no parts if the layer has no such parameters.
    ops::Stack stack(Place place) const;
    const ops::Recipe& recipe(Place place) const;
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
struct Gradients {
    std::vector<GradientSum*> sums = {};  // of each parameter of the unit
    Joined joined = {};                   // the sums of each join as one tensor

    /// The sums of a place.
    std::span<GradientSum* const> operator[](Place place) const;
};

}  // namespace argosy::model

// The matrices of a model whose products cast their operands (ops/float8.h).
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "layout/mesh_shape.h"
#include "model/parameter.h"
#include "ops/float8.h"

namespace argosy::parallel {

struct ProductCasts {
    const ops::Recipe* recipe = nullptr;  // null: no product casts
    /// Layers that compute in the type of their weights: those whose name ("layers.0.attention.wo", "output")
    /// has one of these parts.
    std::vector<std::string> filter = {};
    /// Ranks keep and gather the matrices in float8, cast from the master weights after each update.
    /// REQUIRES: the recipe has one scale for a matrix.
    bool gather = false;
    /// Layers whose width (width_of_layer()) is below it compute in the type of their weights, too.
    double min_width = 0;

    bool has_scales_of_matrices() const {
        return recipe != nullptr && (recipe->forward.left.scaling == ops::Scaling::Matrix ||
                                     recipe->input_gradient.right.scaling == ops::Scaling::Matrix);
    }
};

/// The layer's name for a filter: "layers.0.attention.wo", "output".
std::string layer_name(const model::Parameter& parameter);

/// The number that divides both sides of a rank's part of a matrix, if its products are cast: GPUs take no
/// others.
int64_t multiple_of_sides(const ops::Recipe& recipe);

/// The width of a layer: out * in / (out + in), where [out, in] are the sizes of a rank's part of the matrix;
/// the matrices of a join count as one. A product in float8 saves time with out * in, and its casts take time
/// with out + in.
double width_of_layer(const std::vector<model::Parameter>& unit, const model::Parameter& layer,
                      const layout::MeshShape& mesh);
/// The width from which on products by the recipe, with their casts, are faster than in bf16 on an H200. None
/// for MXFP8, which it does not multiply.
std::optional<double> min_width_of_gain(const ops::Recipe& recipe);

/// The recipe of each matrix of a unit, the same on all ranks; null: its products do not cast. All of a join
/// have one recipe: if one of them is filtered, all are. A matrix is not cast either if a rank's part has a
/// side that the products of GPUs do not take: no multiple of 16 numbers, or of a block.
std::vector<const ops::Recipe*> recipes_of(const std::vector<model::Parameter>& unit,
                                           const ProductCasts& casts, const layout::MeshShape& mesh);

/// The numbers of the matrices of a unit that are kept in float8. A table that is the embedding too is not.
std::set<int> kept_in_float8(const std::vector<model::Parameter>& unit,
                             const std::vector<const ops::Recipe*>& recipes, const ProductCasts& casts);

}  // namespace argosy::parallel

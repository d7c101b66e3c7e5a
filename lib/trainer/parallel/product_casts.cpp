#include "parallel/product_casts.h"

#include <algorithm>

#include "parallel/sharded_parameter.h"

namespace argosy::parallel {
namespace {

bool is_filtered(const std::string& name, const std::vector<std::string>& filter) {
    return std::ranges::any_of(filter,
                               [&](const std::string& part) { return name.find(part) != std::string::npos; });
}

/// Whether the parts of all ranks of the tensor axis have sides that products take.
bool has_sizes(const ops::Recipe& recipe, const layout::ParamSpec& spec, const layout::MeshShape& mesh) {
    const int64_t multiple = multiple_of_sides(recipe);
    layout::Coordinates coordinates{};
    for (int& rank = coordinates[static_cast<int>(layout::Axis::Tensor)];
         rank < mesh.degree(layout::Axis::Tensor); ++rank) {
        for (const int64_t size : unsharded_shape(spec, mesh, coordinates)) {
            if (size % multiple != 0) return false;
        }
    }
    return true;
}

}  // namespace

int64_t multiple_of_sides(const ops::Recipe& recipe) {
    return recipe.has_blocks() ? recipe.forward.left.block_size : 16;
}

double width_of_layer(const std::vector<model::Parameter>& unit, const model::Parameter& layer,
                      const layout::MeshShape& mesh) {
    double out = 0, in = 0;
    for (const model::Parameter& each : unit) {
        if (each.place != layer.place) continue;
        const std::vector<int64_t> sizes = unsharded_shape(each.spec, mesh, {});
        out += static_cast<double>(sizes[0]), in = static_cast<double>(sizes[1]);
    }
    return out * in / (out + in);
}

std::optional<double> min_width_of_gain(const ops::Recipe& recipe) {
    // On an H200 (tests/gpu/results/): FLOP/s of the products of q, k, v and o of Qwen2.5 7B by themselves,
    // and bytes/s of casts in a step of 7B. With one scale for a matrix 4 bytes of each number of an input or
    // an output's gradient are read and written, and 2 more are read where the operation that wrote it did
    // not find the largest magnitude: 4.4 in the mean of a layer. Otherwise each product casts its own
    // operands: if lines have scales, 2 bytes are read twice, and 1 is written; blocks are read once, and
    // their scales are copied. The weights' casts are not counted.
    if (recipe.has_blocks() && recipe.forward.left.block_size != 128) return std::nullopt;
    constexpr double kNarrow = 670e12;
    struct Speeds {
        double flops, bytes_of_a_cast, bytes_per_second;
    };
    constexpr Speeds kMatrix{1250e12, 2.2, 3.9e12}, kLines{1250e12, 5, 3.9e12}, kBlocks{1010e12, 3, 3.05e12};
    const int num_products = recipe.weight_gradient.left.scaling == ops::Scaling::None ? 2 : 3;
    const bool of_matrix = recipe.forward.left.scaling == ops::Scaling::Matrix;
    const Speeds& speeds = recipe.has_blocks() ? kBlocks : of_matrix ? kMatrix : kLines;
    const int num_casts = of_matrix ? 2 : num_products - 1;
    return speeds.bytes_of_a_cast * num_casts / speeds.bytes_per_second /
           (2 * num_products * (1 / kNarrow - 1 / speeds.flops));
}

std::string layer_name(const model::Parameter& parameter) {
    if (parameter.is_table && parameter.is_projection)
        return parameter.place.layers;  // its own name is the embedding's
    return parameter.spec.name.substr(0, parameter.spec.name.rfind('.'));
}

std::vector<const ops::Recipe*> recipes_of(const std::vector<model::Parameter>& unit,
                                           const ProductCasts& casts, const layout::MeshShape& mesh) {
    std::vector<const ops::Recipe*> recipes(unit.size());
    if (casts.recipe == nullptr) return recipes;
    const auto is_kept = [&](const model::Parameter& each) {
        if (!each.is_projection || is_filtered(layer_name(each), casts.filter)) return true;
        return !has_sizes(*casts.recipe, each.spec, mesh) ||
               width_of_layer(unit, each, mesh) < casts.min_width;
    };
    for (size_t i = 0; i < unit.size(); ++i) {
        const bool kept = std::ranges::any_of(unit, [&](const model::Parameter& other) {
            return other.place == unit[i].place && is_kept(other);
        });
        recipes[i] = kept ? nullptr : casts.recipe;
    }
    return recipes;
}

std::set<int> kept_in_float8(const std::vector<model::Parameter>& unit,
                             const std::vector<const ops::Recipe*>& recipes, const ProductCasts& casts) {
    std::set<int> numbers;
    for (int i = 0; i < std::ssize(unit); ++i) {
        if (casts.gather && recipes[i] != nullptr && !unit[i].is_table) numbers.insert(i);
    }
    return numbers;
}

}  // namespace argosy::parallel

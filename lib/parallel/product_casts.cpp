#include "parallel/product_casts.h"

#include <algorithm>

#include "parallel/sharded_parameter.h"

namespace argosy::parallel {
namespace {

using model::Role;

bool is_filtered(const std::string& name, const std::vector<std::string>& filter) {
    return std::ranges::any_of(filter,
                               [&](const std::string& part) { return name.find(part) != std::string::npos; });
}

/// Whether the parts of all ranks of the tensor axis have sides that products take.
bool has_sizes(const ops::Recipe& recipe, const layout::ParamSpec& spec, const layout::MeshShape& mesh) {
    const bool blocks = recipe.forward.left.scaling == ops::Scaling::Block;
    const int64_t multiple = blocks ? ops::kBlockSize : 16;
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

bool is_matrix_of_products(Role role) {
    constexpr Role kRoles[] = {Role::Wq,   Role::Wk, Role::Wv,   Role::Wo,
                               Role::Gate, Role::Up, Role::Down, Role::Output};
    return std::ranges::find(kRoles, role) != std::end(kRoles);
}

std::string layer_name(const model::Parameter& parameter) {
    if (parameter.role == Role::Output) return "output";  // a tied one has the embedding's name
    return parameter.spec.name.substr(0, parameter.spec.name.rfind('.'));
}

model::ByRole<const ops::Recipe*> recipes_of(const std::vector<model::Parameter>& unit,
                                             const ProductCasts& casts, const layout::MeshShape& mesh) {
    model::ByRole<const ops::Recipe*> recipes;
    if (casts.recipe == nullptr) return recipes;
    const auto is_cast = [&](const model::Parameter& each) {
        return is_matrix_of_products(each.role) && !is_filtered(layer_name(each), casts.filter) &&
               has_sizes(*casts.recipe, each.spec, mesh);
    };
    const auto other_is_kept = [&](const model::Parameter& each) {
        return std::ranges::any_of(unit, [&](const model::Parameter& other) {
            return model::join_of(other.role) == model::join_of(each.role) && !is_cast(other);
        });
    };
    for (const model::Parameter& each : unit) {
        const bool kept = !is_cast(each) || (model::join_of(each.role) && other_is_kept(each));
        recipes[each.role] = kept ? nullptr : casts.recipe;
    }
    return recipes;
}

std::set<Role> roles_in_float8(const std::vector<model::Parameter>& unit,
                               const model::ByRole<const ops::Recipe*>& recipes, const ProductCasts& casts) {
    std::set<Role> roles;
    for (const model::Parameter& each : unit) {
        const bool is_embedding = each.role == Role::Output && each.spec.name != "output.weight";
        if (casts.gather && recipes[each.role] != nullptr && !is_embedding) roles.insert(each.role);
    }
    return roles;
}

}  // namespace argosy::parallel

#include "setup/product_casts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "setup/setup.h"

namespace argosy::setup {
namespace {

std::string_view recipe_name(const config::JobConfig& config) {
    return config.model.converters[0] == config::Converter::Float8
               ? name_of(config.float8.recipe_name.value_or(config::Float8Recipe::Tensorwise))
               : name_of(config.mx.recipe_name.value_or(config::MxRecipe::Floor));
}

ops::Accumulation emulated_accumulation(const config::JobConfig& config) {
    const bool hopper = config.float8.emulated_accumulation == config::EmulatedAccumulation::Hopper;
    return hopper ? ops::Accumulation::Hopper : ops::Accumulation::Float32;
}

/// "layers.3.attention.wo" -> "attention.wo".
std::string without_layer(const std::string& name) {
    if (!name.starts_with("layers.")) return name;
    return name.substr(name.find('.', name.find('.') + 1) + 1);
}

/// Names the parts of the filter that no matrix has.
void warn_of_idle_filters(const std::vector<std::string>& filter, const std::set<std::string>& names) {
    for (const std::string& part : filter) {
        const bool found = std::ranges::any_of(
            names, [&](const std::string& name) { return name.find(part) != std::string::npos; });
        if (!found) spdlog::warn("filter_fqns has no effect: no layer's name has '{}' in it", part);
    }
}

}  // namespace

parallel::ProductCasts product_casts(const config::JobConfig& config, int64_t rank_tokens) {
    if (config.model.converters.empty()) return {};
    const ops::Recipe* recipe = ops::find_recipe(recipe_name(config), emulated_accumulation(config));
    ARGOSY_CHECK(recipe != nullptr, "no recipe is called {}", recipe_name(config));
    if (!divides(recipe->weight_gradient.left, rank_tokens)) {
        throw UserError(
            "{} casts blocks of {} tokens, but a rank has {} in a microbatch: change training.seq_len or the "
            "sequences of a microbatch",
            recipe_name(config), ops::kBlockSize, rank_tokens);
    }
    const bool is_float8 = config.model.converters[0] == config::Converter::Float8;
    return {recipe, is_float8 ? config.float8.filter_fqns : config.mx.filter_fqns,
            is_float8 && config.float8.enable_fsdp_float8_all_gather};
}

void log_product_casts(const config::JobConfig& config, const model::ModelSpec& spec,
                       const layout::MeshShape& mesh) {
    if (config.model.converters.empty()) return;
    const train::TrainerOptions options = trainer_options(config, spec, mesh);
    int num_cast = 0;
    std::set<std::string> kept, names;
    for (const auto& unit : train::place_parameters(options, mesh).units) {
        const auto recipes = parallel::recipes_of(unit, options.casts, mesh);
        for (const model::Parameter& each : unit) {
            if (!parallel::is_matrix_of_products(each.role)) continue;
            names.insert(parallel::layer_name(each));
            if (recipes[each.role] != nullptr) {
                ++num_cast;
            } else {
                kept.insert(without_layer(parallel::layer_name(each)));
            }
        }
    }
    warn_of_idle_filters(options.casts.filter, names);
    spdlog::info("{}: the products of {} matrices cast their operands to eight bits and are emulated {}{}",
                 recipe_name(config), num_cast,
                 options.casts.recipe->accumulation == ops::Accumulation::Hopper
                     ? "with the sums of a Hopper GPU"
                     : "in bf16",
                 kept.empty() ? "" : fmt::format("; those of {} do not", fmt::join(kept, ", ")));
}

}  // namespace argosy::setup

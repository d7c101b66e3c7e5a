#include "setup/converters.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "ops/gpu_float8.h"
#include "parallel/sharded_parameter.h"

namespace argosy::setup {
namespace {

std::string_view recipe_name(const config::JobConfig& config) {
    return config.model.converters[0] == config::Converter::Float8 ? name_of(config.float8.recipe())
                                                                   : name_of(config.mx.recipe());
}

/// The entry of filter_fqns that filters by size.
constexpr const char* kSmallFilter = "auto_filter_small_kn";

/// "layers.3.attention.wo" -> "attention.wo".
std::string without_layer(const std::string& name) {
    if (!name.starts_with("layers.")) return name;
    return name.substr(name.find('.', name.find('.') + 1) + 1);
}

/// A model's matrices, sorted by what the converter does with their products.
struct SortedMatrices {
    std::vector<std::vector<int64_t>> cast;  // the sizes of a rank's part of each
    std::set<std::string> names;             // of all layers, as filter_fqns has them
    // Without the layer's number:
    std::set<std::string> cast_narrow;  // cast, although their casts take longer than float8 saves
    std::set<std::string> filtered, indivisible, narrow;  // not cast, by reason
    std::set<std::string> experts;                        // and their routers: never cast

    /// Why no matrix is cast: "filter_fqns keeps ..., and 16 does not divide ...".
    std::string reasons(const ops::Recipe& recipe) const {
        std::vector<std::string> reasons;
        if (!filtered.empty())
            reasons.push_back(fmt::format("filter_fqns keeps {}", fmt::join(filtered, ", ")));
        if (!narrow.empty())
            reasons.push_back(fmt::format("{} keeps {}", kSmallFilter, fmt::join(narrow, ", ")));
        if (!indivisible.empty()) {
            reasons.push_back(fmt::format("{} does not divide the sides of a rank's part of {}",
                                          parallel::multiple_of_sides(recipe), fmt::join(indivisible, ", ")));
        }
        return fmt::format("{}", fmt::join(reasons, ", and "));
    }

    std::string kept() const {
        std::set<std::string> all;
        for (const auto* layers : {&filtered, &indivisible, &narrow, &experts})
            all.insert(layers->begin(), layers->end());
        return fmt::format("{}", fmt::join(all, ", "));
    }
};

SortedMatrices sort_matrices(const train::TrainerOptions& options, const layout::MeshShape& mesh) {
    const parallel::ProductCasts &casts = options.model.casts, without_filter{.recipe = casts.recipe},
                                 by_name{.recipe = casts.recipe, .filter = casts.filter};
    const double min_width = parallel::min_width_of_gain(*casts.recipe).value_or(0);
    SortedMatrices sorted;
    for (const auto& unit : train::place_parameters(options, mesh).units) {
        const auto recipes = parallel::recipes_of(unit, casts, mesh),
                   divisible = parallel::recipes_of(unit, without_filter, mesh),
                   named = parallel::recipes_of(unit, by_name, mesh);
        for (size_t i = 0; i < unit.size(); ++i) {
            const model::Parameter& each = unit[i];
            const bool of_experts = !each.is_projection && (each.spec.kind == layout::ParameterKind::Matrix ||
                                                            each.spec.kind == layout::ParameterKind::Router);
            if (!each.is_projection && !of_experts) continue;
            const std::string name = without_layer(parallel::layer_name(each));
            sorted.names.insert(parallel::layer_name(each));
            if (of_experts) {
                sorted.experts.insert(name);
            } else if (recipes[i] != nullptr) {
                sorted.cast.push_back(parallel::unsharded_shape(each.spec, mesh, {}));
                if (parallel::width_of_layer(unit, each, mesh) < min_width) sorted.cast_narrow.insert(name);
            } else if (divisible[i] == nullptr) {
                sorted.indivisible.insert(name);
            } else {
                (named[i] == nullptr ? sorted.filtered : sorted.narrow).insert(name);
            }
        }
    }
    return sorted;
}

/// Names the parts of the filter that no matrix has.
void warn_of_idle_filters(const std::vector<std::string>& filter, const std::set<std::string>& names) {
    for (const std::string& part : filter) {
        const bool found = std::ranges::any_of(
            names, [&](const std::string& name) { return name.find(part) != std::string::npos; });
        if (!found) spdlog::warn("filter_fqns has no effect: no layer's name has '{}' in it", part);
    }
}

std::string text_of(const ops::Float8Choice& choice) {
    if (choice.way == ops::Float8Way::Native) return "in float8";
    return fmt::format(
        "{}, because {}",
        choice.way == ops::Float8Way::ScaledAfter ? "in float8, scaled afterwards" : "emulated in bf16",
        choice.reason);
}

}  // namespace

std::string ways_of_products(const ops::Recipe& recipe, const std::vector<std::vector<int64_t>>& matrices,
                             at::ScalarType compute, int64_t num_tokens, const cublas::Target& target) {
    std::map<std::string, std::vector<std::string>> ways;  // with the kinds of products that take them
    const auto add = [&](const char* kind, const ops::Recipe::Product& casts, at::ScalarType result,
                         int64_t columns, int64_t terms) {
        if (casts.left.scaling == ops::Scaling::None) return;
        const ops::Float8Choice choice =
            recipe.accumulation == ops::Accumulation::Float32
                ? ops::Float8Choice{ops::Float8Way::Emulated, "quantize.linear.float8.emulate is true"}
                : choose_float8(casts, result, columns, terms, target);
        auto& kinds = ways[text_of(choice)];
        if (std::ranges::find(kinds, kind) == kinds.end()) kinds.emplace_back(kind);
    };
    for (const std::vector<int64_t>& sizes : matrices) {
        const int64_t out = sizes[0], in = sizes[1];
        add("outputs", recipe.forward, compute, out, in);
        add("input gradients", recipe.input_gradient, compute, in, out);
        add("weight gradients", recipe.weight_gradient, at::kFloat, in, num_tokens);
    }
    std::vector<std::string> texts;
    for (const auto& [way, kinds] : ways) texts.push_back(fmt::format("{} {}", fmt::join(kinds, ", "), way));
    return fmt::format("{}", fmt::join(texts, "; "));
}

std::string product_casts_name(const config::JobConfig& config, const train::TrainerOptions& options,
                               const layout::MeshShape& mesh) {
    if (options.model.casts.recipe == nullptr || sort_matrices(options, mesh).cast.empty()) return "";
    const bool is_float8 = config.model.converters[0] == config::Converter::Float8;
    return fmt::format("{}{}", is_float8 ? "float8 " : "", recipe_name(config));
}

parallel::ProductCasts product_casts(const config::JobConfig& config, int64_t rank_tokens) {
    if (config.model.converters.empty()) return {};
    const ops::Recipe* recipe = ops::find_recipe(
        recipe_name(config), config.float8.emulate ? ops::Accumulation::Float32 : ops::Accumulation::Native);
    ARGOSY_CHECK(recipe != nullptr, "no recipe is called {}", recipe_name(config));
    if (!divides(recipe->weight_gradient.left, rank_tokens)) {
        throw UserError(
            "{} casts blocks of {} tokens, but a rank has {} in a microbatch: change training.seq_len or the "
            "sequences of a microbatch",
            recipe_name(config), recipe->weight_gradient.left.block_size, rank_tokens);
    }
    const bool is_float8 = config.model.converters[0] == config::Converter::Float8;
    parallel::ProductCasts casts{.recipe = recipe,
                                 .filter = is_float8 ? config.float8.filter_fqns : config.mx.filter_fqns,
                                 .gather = is_float8 && config.float8.enable_fsdp_float8_all_gather};
    if (std::erase(casts.filter, kSmallFilter) > 0) {
        const auto min_width = parallel::min_width_of_gain(*recipe);
        if (!min_width) {
            throw UserError("filter_fqns has {}, but the speed of {} was not measured: name the layers",
                            kSmallFilter, recipe_name(config));
        }
        casts.min_width = *min_width;
    }
    return casts;
}

void check_product_casts(const config::JobConfig& config, const train::TrainerOptions& options,
                         const layout::MeshShape& mesh) {
    if (options.model.casts.recipe == nullptr) return;
    const SortedMatrices matrices = sort_matrices(options, mesh);
    if (!matrices.cast.empty() || !matrices.narrow.empty()) return;
    throw UserError(
        "{} casts the products of no matrix: {}; change filter_fqns, the model or "
        "parallelism.tensor_parallel_degree, or remove model.converters",
        recipe_name(config), matrices.reasons(*options.model.casts.recipe));
}

void log_product_casts(const config::JobConfig& config, const train::TrainerOptions& options,
                       const layout::MeshShape& mesh, const cublas::Target& target) {
    const parallel::ModelOptions& model = options.model;
    const ops::Recipe* recipe = model.casts.recipe;
    if (recipe == nullptr) return;
    const SortedMatrices matrices = sort_matrices(options, mesh);
    const std::string kept = matrices.kept();
    warn_of_idle_filters(model.casts.filter, matrices.names);
    if (matrices.cast.empty()) {
        spdlog::warn("{} casts the products of no matrix: {}; this run is as without model.converters",
                     recipe_name(config), matrices.reasons(*recipe));
        return;
    }
    const int64_t num_tokens = model.microbatch_size * model.seq_len / mesh.degree(layout::Axis::Context);
    spdlog::info("{}: the products of {} matrices cast their operands to eight bits{}; {}",
                 recipe_name(config), matrices.cast.size(),
                 kept.empty() ? "" : fmt::format(", those of {} do not", kept),
                 config.debug.plain_operations
                     ? "all emulated, because debug.plain_operations is true"
                     : ways_of_products(*recipe, matrices.cast, model.precision.compute, num_tokens, target));
    const bool native = target.multiplies_float8() && !config.debug.plain_operations &&
                        recipe->accumulation == ops::Accumulation::Native;
    if (matrices.cast_narrow.empty() || !native) return;
    spdlog::info(
        "the products of {} are too narrow for float8: by the speeds of an H200 their casts take longer than "
        "float8 saves; \"{}\" in quantize.linear.float8.filter_fqns keeps them in bf16",
        fmt::join(matrices.cast_narrow, ", "), kSmallFilter);
}

}  // namespace argosy::setup

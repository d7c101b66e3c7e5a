// The model of a run: a preset, or the config.json of a Hugging Face folder; and how a translated run names
// it.
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/strict_json.h"
#include "setup/options.h"
#include "tokenizer/tokenizer.h"

namespace argosy::setup {
namespace {

using nlohmann::json;

std::string preset_title(const config::Model& model) {
    return fmt::format("{} {}", model.name.value_or(config::Model::kDefaultName),
                       model.flavor.value_or(config::Model::kDefaultFlavor));
}

model::ModelSpec preset_of(const config::Model& model) {
    return model::preset(model.name.value_or(config::Model::kDefaultName),
                         model.flavor.value_or(config::Model::kDefaultFlavor));
}

/// Whether the preset says the architecture, although a folder is named.
bool has_preset_alone(const config::Model& model) {
    const std::string& folder = model.hf_assets_path;
    if (model::has_hugging_face_config(folder)) return false;
    if (model.name && model.flavor) return true;
    if (tokenizer::tokenizer_files_in(folder).empty()) return false;
    throw UserError(
        "model.hf_assets_path = {} has a tokenizer and no config.json, so model.name and model.flavor must "
        "both say the architecture",
        folder);
}

std::optional<model::ModelSpec> known_preset(const config::Model& model) {
    try {
        return preset_of(model);
    } catch (const UserError&) {
        return std::nullopt;
    }
}

void refuse_preset(config::Arrival& arrival) {
    try {
        preset_of(arrival.config.model);
    } catch (const UserError& error) {
        arrival.keys.push_back({config::Fate::Missing, config::kNoPreset, "", error.what()});
    }
}

json json_of(const config::Value& value) {
    if (const auto* number = std::get_if<int64_t>(&value)) return *number;
    if (const auto* number = std::get_if<double>(&value)) return *number;
    if (const auto* is_on = std::get_if<bool>(&value)) return *is_on;
    const auto* text = std::get_if<std::string>(&value);
    return text ? json(*text) : json();
}

/// The model of the sizes. Sizes without a number of layers change the preset.
model::ModelSpec spec_of(const std::vector<config::Setting>& sizes,
                         const std::optional<model::ModelSpec>& preset, const config::Model& model) {
    const auto counts_layers = [](const config::Setting& size) { return size.key == "num_hidden_layers"; };
    const bool is_whole = std::ranges::any_of(sizes, counts_layers);
    if (!is_whole && !preset) throw UserError("the file has no number of layers, and no preset has its name");
    const std::string name = model::architecture_of(model.name.value_or("llama3"));
    json config = {{"model_type", model::model_type_of(name)}, {"rms_norm_eps", 1e-5}};
    if (!is_whole) config = parse_json(model::hugging_face_config(*preset), "the preset");
    for (const config::Setting& size : sizes) {
        std::string path = "/" + size.key;
        std::ranges::replace(path, '.', '/');
        config[json::json_pointer(path)] = json_of(size.value);
    }
    if (config.contains("rope_scaling") && config["rope_scaling"].is_object()) {
        json& scaling = config["rope_scaling"];
        if (!scaling.contains("rope_type")) scaling["rope_type"] = "llama3";
        if (scaling["rope_type"] == "default") config.erase("rope_scaling");
    }
    return model::parse_hugging_face_config(config.dump(), "the sizes of the model");
}

/// The run reads its model from the folder.
void name_folder(config::Arrival& arrival, const std::string& folder) {
    config::Model& model = arrival.config.model;
    model.name.reset();
    model.flavor.reset();
    model.hf_assets_path = folder;
    for (const char* key : {"model.name", "model.flavor"}) arrival.given.erase(key);
    arrival.given.insert("model.hf_assets_path");
    arrival.keys.push_back(
        {config::Fate::Equivalent, "(config.json)", "",
         fmt::format("model.hf_assets_path = \"{}\", whose config.json has the sizes", folder)});
}

}  // namespace

model::ModelSpec choose_model(const config::Model& model) {
    if (model.hf_assets_path.empty() || has_preset_alone(model)) return preset_of(model);
    model::ModelSpec spec = model::read_hugging_face_config(model.hf_assets_path, {model.accept_config_keys});
    const std::string name = model.name.value_or(spec.name);
    if (model::architecture_of(name) != spec.name) {
        throw UserError("model.name is {}, but {}/config.json is a {}; remove one of the two", name,
                        model.hf_assets_path, spec.name);
    }
    if (!model.flavor) return spec;
    const auto differences = model::differences(model::preset(name, *model.flavor), spec);
    if (differences.empty()) return spec;
    throw UserError("the preset {} {} and {}/config.json are different models: {}; remove one of the two",
                    name, *model.flavor, model.hf_assets_path, fmt::join(differences, "; "));
}

std::string missing_assets(const config::Model& model) {
    const std::string& folder = model.hf_assets_path;
    if (folder.empty() || model::has_hugging_face_config(folder) ||
        !tokenizer::tokenizer_files_in(folder).empty())
        return "";
    return fmt::format(
        "model.hf_assets_path = {} has neither a config.json nor a tokenizer: the model is the preset {}, "
        "and "
        "checkpoints have no tokenizer",
        folder, preset_title(model));
}

std::string settle_model(config::Arrival& arrival, const std::string& folder) {
    config::Model& model = arrival.config.model;
    const std::optional<model::ModelSpec> preset = known_preset(model);
    if (arrival.sizes.empty()) {
        const bool may_have_config = !model.flavor && !model.hf_assets_path.empty();
        if (!preset && !may_have_config) refuse_preset(arrival);
        return "";
    }
    try {
        const model::ModelSpec spec = spec_of(arrival.sizes, preset, model);
        if (preset && model::differences(*preset, spec).empty()) return "";
        const std::string text = model::hugging_face_config(spec);
        name_folder(arrival, folder);
        return text;
    } catch (const UserError& error) {
        arrival.keys.push_back({config::Fate::Missing, "(model)", "", error.what()});
        return "";
    }
}

std::string model_title(const config::Model& model, const model::ModelSpec& spec) {
    if (model::has_hugging_face_config(model.hf_assets_path))
        return fmt::format("{} of {}", spec.name, model.hf_assets_path);
    return preset_title(model);
}

}  // namespace argosy::setup

// Folders of torch.distributed.checkpoint as TorchTitan writes them: which of them is whole, which model it
// is, and where its run stood.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/raw_file.h"
#include "interop/foreign_sources.h"
#include "interop/safetensors.h"
#include "interop/torchtitan_names.h"
#include "pytorch/distributed_checkpoint.h"

namespace argosy::interop {
namespace {

namespace fs = std::filesystem;
using pytorch::DistributedCheckpoint;

constexpr int64_t kMaxTitanConfigBytes = 16 << 20;

/// N of "step-N". This program's own steps begin with zeros.
std::optional<int64_t> titan_step(const std::string& name) {
    const std::string_view word = "step-";
    const bool is_own = name.size() > word.size() + 1 && name[word.size()] == '0';
    if (!name.starts_with(word) || is_own) return std::nullopt;
    int64_t step = 0;
    const auto [end, error] = std::from_chars(name.data() + word.size(), name.data() + name.size(), step);
    return error == std::errc() && end == name.data() + name.size() ? std::optional(step) : std::nullopt;
}

bool is_whole_titan_step(const fs::path& folder) {
    return pytorch::is_distributed_checkpoint(folder) || is_there(folder / kSafetensorsIndexName) ||
           is_there(folder / kSafetensorsName);
}

/// Refuses models of TorchTitan that this program does not have.
void refuse_other_models(const DistributedCheckpoint& checkpoint) {
    constexpr std::pair<std::string_view, const char*> kOthers[] = {
        {".attention.wkv_a.", "DeepSeek-V3 (multi-head latent attention)"},
        {".attention.sinks", "gpt-oss (attention sinks)"},
        {".attn.A_log", "Qwen3.5 (gated delta net)"},
        {".vision_encoder.", "a model with an encoder of images"},
        {"double_blocks.", "Flux, a model of images"}};
    for (const checkpoint::TensorInfo& tensor : checkpoint.tensors()) {
        for (const auto& [part, model] : kOthers) {
            if (("." + tensor.name).find(part) == std::string::npos) continue;
            throw UserError("{} is {}, which is not a model of this program: it has the tensor {}",
                            checkpoint.place(), model, tensor.name);
        }
    }
}

void refuse_replica(const DistributedCheckpoint& checkpoint) {
    const auto& keys = checkpoint.object_keys();
    const auto is_data = [](const std::string& key) { return key.starts_with("dataloader"); };
    if (!checkpoint.tensors().empty() || !std::ranges::all_of(keys, is_data)) return;
    throw UserError(
        "{} has no tensors{}; give a folder step-N of the run, which has the model", checkpoint.place(),
        keys.empty() ? "" : ", but the place in the data of one replica (a folder ft-replicat-N of torchft)");
}

/// The presets whose weights these are.
std::vector<model::NamedPreset> fitting_presets(const DistributedCheckpoint& checkpoint) {
    std::vector<model::NamedPreset> presets = model::presets();
    std::erase_if(presets, [&](const model::NamedPreset& preset) {
        return !are_torchtitan_weights_of(preset.spec, checkpoint);
    });
    return presets;
}

/// The model of the tensors' names and shapes. A Llama's rotary frequencies do not show in them, and
/// TorchTitan has had others than the presets: 1B and 3B are scaled by 8, and nothing was before October
/// 2025.
void choose_preset(const DistributedCheckpoint& checkpoint, ModelSource& source) {
    const std::vector<model::NamedPreset> presets = fitting_presets(checkpoint);
    if (presets.size() != 1 || presets[0].spec.name == "llama3") {
        std::vector<std::string> titles;
        for (const model::NamedPreset& preset : presets) titles.push_back(preset.name + " " + preset.flavor);
        std::string found = "no preset has its tensors";
        if (titles.size() == 1)
            found = "its tensors, which are those of " + titles[0] +
                    ", do not show how its rotary frequencies are scaled";
        if (titles.size() > 1)
            found = fmt::format("several presets have its tensors ({})", fmt::join(titles, ", "));
        throw UserError(
            "{} does not say its model, and {}. Name a Hugging Face folder with the model's config.json and "
            "the tokenizer's files (convert-checkpoint --assets; a run has its own model)",
            checkpoint.place(), found);
    }
    source.spec = presets[0].spec;
    source.config_json = model::hugging_face_config(source.spec);
    spdlog::info("{}: by its tensors the model is the preset {} {}", checkpoint.place(), presets[0].name,
                 presets[0].flavor);
}

void say_frequencies(const DistributedCheckpoint& checkpoint, const model::ModelSpec& spec) {
    spdlog::info("{}: taken for the given model, with the rotary base {:g} and {}, which no tensor shows",
                 checkpoint.place(), spec.rope_theta,
                 spec.rope_scaling ? fmt::format("frequencies scaled by {:g}", spec.rope_scaling->factor)
                                   : "frequencies that are not scaled");
}

/// A number of the run's state: an object, or a tensor of older versions.
std::optional<int64_t> number_of(const DistributedCheckpoint& checkpoint, const std::string& key) {
    if (const pytorch::SavedFile* object = checkpoint.object(key)) {
        if (const auto number = object->root().integer()) return number;
    }
    const checkpoint::TensorInfo* tensor = checkpoint.find(key);
    if (!tensor || tensor->num_elements() != 1) return std::nullopt;
    const auto read = [&](auto value) {
        checkpoint.read(*tensor, layout::whole(tensor->shape), std::as_writable_bytes(std::span(&value, 1)));
        return static_cast<int64_t>(value);
    };
    if (tensor->type == ElementType::Int64) return read(int64_t{});
    if (tensor->type == ElementType::Int32) return read(int32_t{});
    return std::nullopt;
}

/// The state of the run, as lib/trainer/resume/FORMAT.md defines it. TorchTitan counts no samples, and of the
/// tokens those of one rank (train_state.ntokens_seen).
std::string state_of(int64_t step, int64_t num_updates) {
    const nlohmann::ordered_json guard = {{"skipped", std::max<int64_t>(0, step - num_updates)},
                                          {"nonfinite_in_a_row", 0},
                                          {"spikes_in_a_row", 0},
                                          {"losses", nlohmann::json::array()},
                                          {"grad_norms", nlohmann::json::array()}};
    const nlohmann::ordered_json state = {{"step", step},           {"samples", nullptr}, {"tokens", nullptr},
                                          {"seq_len", 1},           {"seed", 0},          {"data", ""},
                                          {"updates", num_updates}, {"lr_schedule", 2},   {"guard", guard}};
    return state.dump();
}

/// The step of the run; none if there is none, and then the optimizer's states are of no use.
std::optional<int64_t> step_of(const DistributedCheckpoint& checkpoint, ModelSource& source) {
    const auto step = number_of(checkpoint, "train_state.step");
    if (step && *step >= 0) return step;
    const auto is_state = [](const auto& tensor) { return tensor.name.starts_with("optimizer."); };
    if (std::ranges::any_of(checkpoint.tensors(), is_state)) {
        source.weights_alone =
            "the optimizer's states are left out, because there is no step of the run (train_state.step)";
    }
    return std::nullopt;
}

checkpoint::Description description_of(const DistributedCheckpoint& checkpoint, const ModelSource& source,
                                       int64_t step, const TorchTitanTensors& named, bool checked) {
    const auto epoch = number_of(checkpoint, "lr_scheduler.last_epoch");
    if (epoch && *epoch != step && !checked) {
        spdlog::warn(
            "{}: its learning rate is at step {}, but the run at step {}; here it follows from the step",
            checkpoint.place(), *epoch, step);
    }
    return {.step = step,
            .program = "TorchTitan",
            .model_only = !named.has_optimizer,
            .model = source.config_json,
            .state = state_of(step, named.num_updates > 0 ? named.num_updates : step)};
}

}  // namespace

bool give_model(const OpenOptions& options, ModelSource& source) {
    source.assets = options.assets;
    const fs::path config = options.assets / "config.json";
    const bool has_config = !options.assets.empty() && is_there(config);
    if (!has_config && !options.spec) return false;
    if (has_config) source.config_json = read_text(config, kMaxTitanConfigBytes);
    source.spec = options.spec ? *options.spec
                               : model::parse_hugging_face_config(source.config_json, config.string(),
                                                                  options.accepted);
    if (!has_config) source.config_json = model::hugging_face_config(source.spec);
    return true;
}

ModelSource open_distributed(const fs::path& folder, const OpenOptions& options) {
    auto opened = std::make_unique<DistributedCheckpoint>(folder, pytorch::KnownClasses{}, options.metadata);
    const DistributedCheckpoint& checkpoint = *opened;
    refuse_replica(checkpoint);
    refuse_other_models(checkpoint);
    ModelSource source{.form = Form::Distributed, .path = folder};
    if (give_model(options, source))
        say_frequencies(checkpoint, source.spec);
    else
        choose_preset(checkpoint, source);
    if (!has_torchtitan_names(source.spec)) {
        throw UserError("{}: TorchTitan has no model like this one ({}); it has Llama 3 and Qwen3",
                        folder.string(), source.spec.name);
    }
    std::vector<std::string> other_tensors;
    for (const pytorch::OtherTensor& tensor : checkpoint.other_tensors())
        other_tensors.push_back(tensor.name);
    const std::optional<int64_t> step = step_of(checkpoint, source);
    if (options.checked) source.weights_alone = options.weights_alone;
    TorchTitanTensors named = with_torchtitan_names(std::move(opened), other_tensors, source.spec,
                                                    step && source.weights_alone.empty(), options.checked);
    if (!named.state_faults.empty()) {
        source.weights_alone =
            "the optimizer's states are left out, because they do not fit the model: " + named.state_faults;
    }
    if (!source.weights_alone.empty() && !options.checked)
        spdlog::warn("{}: {}", folder.string(), source.weights_alone);
    if (step) source.description = description_of(checkpoint, source, *step, named, options.checked);
    source.tensors = std::move(named.tensors);
    return source;
}

std::optional<fs::path> newest_titan_step(const fs::path& folder, bool quiet) {
    std::vector<std::pair<int64_t, fs::path>> steps;
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(folder, failed)) {
        const auto step = titan_step(entry.path().filename().string());
        if (step && fs::is_directory(entry.path(), failed)) steps.emplace_back(*step, entry.path());
    }
    if (steps.empty()) return std::nullopt;
    std::ranges::sort(steps, std::greater());
    for (const auto& [step, path] : steps) {
        if (is_whole_titan_step(path)) return path;
        if (quiet) continue;
        spdlog::warn("{} is passed over: it has neither .metadata nor {}, as if its save did not end",
                     path.string(), kSafetensorsIndexName);
    }
    throw UserError(
        "{} has {} folders step-N, but none has .metadata: either no save of them ended, or they are not of "
        "torch.distributed.checkpoint (TorchTitan's torch_checkpointing is not read)",
        folder.string(), steps.size());
}

void refuse_unfinished_titan_step(const fs::path& folder) {
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(folder, failed)) {
        const std::string name = entry.path().filename().string();
        if (entry.path().extension() == ".distcp") {
            throw UserError(
                "{} has {}, but no .metadata, which torch.distributed.checkpoint writes last: its save did "
                "not end; take another step",
                folder.string(), name);
        }
        if (name == "sharded" && entry.is_directory(failed)) {
            throw UserError(
                "{} has the folder sharded, whose files are pieces of tensors, but no {}: TorchTitan's last "
                "save (last_save_in_hf) did not end; take another step",
                folder.string(), kSafetensorsIndexName);
        }
    }
}

}  // namespace argosy::interop

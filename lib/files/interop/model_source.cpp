#include "interop/model_source.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "base/error.h"
#include "base/raw_file.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "checkpoint/partial_folder.h"
#include "checkpoint/step_folder.h"
#include "interop/foreign_sources.h"
#include "interop/names.h"
#include "interop/safetensors.h"
#include "pytorch/distributed_checkpoint.h"
#include "tokenizer/tokenizer_file.h"

namespace argosy::interop {
namespace {

namespace fs = std::filesystem;
using checkpoint::Checkpoint;

constexpr const char *kManifestName = "checkpoint.h5", *kCheckpointFolder = "checkpoint",
                     *kConfigName = "config.json";
constexpr int64_t kMaxAssetBytes = 1 << 30;

constexpr std::array kAssets = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "tokenizer.model",
    "tekken.json",
    "qwen.tiktoken",
    "vocab.json",
    "merges.txt",
    "generation_config.json",
    "added_tokens.json",
    "chat_template.jinja",
};

/// UserError if `path` is a link to a missing file. Hugging Face's cache consists of links, whose files may
/// be gone.
void refuse_broken_link(const fs::path& path) {
    std::error_code failed;
    if (!fs::is_symlink(path, failed) || is_there(path)) return;
    throw UserError("{} is a link to {}, which does not exist; fetch or copy the model again", path.string(),
                    fs::read_symlink(path, failed).string());
}

/// The first entries of a folder, for messages.
std::string contents(const fs::path& folder) {
    constexpr size_t kShown = 12;
    std::vector<std::string> names;
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(folder, failed))
        names.push_back(shown(entry.path().filename().string()));
    if (names.empty()) return failed ? failed.message() : "nothing";
    std::ranges::sort(names);
    return listed(names, kShown);
}

bool has_config(const fs::path& assets) { return !assets.empty() && is_there(assets / kConfigName); }

std::optional<fs::path> newest_step(const fs::path& folder) {
    const std::vector<int64_t> steps = checkpoint::whole_steps(folder);
    if (steps.empty()) return std::nullopt;
    return checkpoint::step_path(folder, steps.back());
}

ModelSource source_of(std::unique_ptr<Checkpoint> opened, const fs::path& path, Form form) {
    ModelSource source{.form = form, .path = path};
    source.description = opened->description();
    source.config_json = source.description->model;
    source.spec =
        model::parse_hugging_face_config(source.config_json, path.string() + ": the model", {.all = true});
    check_weights(*opened, source.spec);
    source.checkpoint = opened.get();
    source.tensors = std::move(opened);
    return source;
}

ModelSource open_checkpoint(const fs::path& path, Form form) {
    return source_of(std::make_unique<Checkpoint>(path), path, form);
}

/// The folder's own config.json comes before the model of the options.
ModelSource open_hugging_face(const fs::path& folder, const OpenOptions& options) {
    ModelSource source{.form = Form::HuggingFace, .path = folder};
    const bool is_described = is_there(folder / kConfigName);
    give_model(is_described ? OpenOptions{.accepted = options.accepted, .assets = folder} : options, source);
    const bool is_pickled = !is_there(folder / kSafetensorsName) && !is_there(folder / kSafetensorsIndexName);
    auto tensors = is_pickled ? open_pickled_weights(folder) : std::make_unique<Safetensors>(folder);
    source.tensors = with_checkpoint_names(std::move(tensors), source.spec, options.checked);
    return source;
}

/// Refuses weights in forms that are not read.
void refuse_other_weights(const fs::path& folder) {
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(folder, failed)) {
        const std::string name = entry.path().filename().string(), ending = entry.path().extension();
        if (ending != ".gguf" && ending != ".pth" && ending != ".pt" && ending != ".ckpt") continue;
        if (name.starts_with("consolidated.")) {
            throw UserError("{} has {}, but no {}, which has the model of Meta's files", folder.string(),
                            name, kMetaParameters);
        }
        throw UserError(
            "{} has {}, which is {} and not read; fetch the model as a Hugging Face folder, with {} and {}",
            folder.string(), shown(name),
            ending == ".gguf" ? "a GGUF model" : "a file of PyTorch with unknown names", kConfigName,
            kSafetensorsName);
    }
}

/// Refuses files of a model in several files whose index is missing.
void refuse_files_without_index(const fs::path& folder) {
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(folder, failed)) {
        const std::string name = entry.path().filename().string();
        if (!name.ends_with(".safetensors") || name.find("-of-") == std::string::npos) continue;
        throw UserError(
            "{} has {}, but no {}, which names the file of each tensor; fetch it from the same place",
            folder.string(), shown(name), kSafetensorsIndexName);
    }
}

ModelSource open_step(const fs::path& folder) {
    if (folder.filename().string().ends_with(".partial")) {
        throw UserError("{} is an unfinished checkpoint; give a folder whose name does not end in .partial",
                        folder.string());
    }
    return open_checkpoint(folder, Form::Sharded);
}

bool has_any(const fs::path& folder, std::initializer_list<const char*> names) {
    return std::ranges::any_of(names, [&](const char* name) { return is_there(folder / name); });
}

bool has_pickled_weights(const fs::path& folder) {
    return has_any(folder, {kPickledWeights, kPickledWeightsIndex});
}

/// Whether the folder has weights in files of Hugging Face's names.
bool has_named_weights(const fs::path& folder) {
    return has_pickled_weights(folder) || has_any(folder, {kSafetensorsName, kSafetensorsIndexName});
}

/// A folder with weights under Hugging Face's names, or with config.json.
ModelSource open_named_weights(const fs::path& folder, const OpenOptions& options) {
    const bool is_pickled = has_pickled_weights(folder), weights = has_named_weights(folder);
    const bool config = is_there(folder / kConfigName);
    if (weights && (config || options.spec || has_config(options.assets)))
        return open_hugging_face(folder, options);
    if (!weights) {
        refuse_files_without_index(folder);
        refuse_unfinished_titan_step(folder);
        refuse_other_weights(folder);
    }
    if (weights || config) {
        throw UserError("{} has {}, but not {}: a Hugging Face folder has both{}", folder.string(),
                        config       ? kConfigName
                        : is_pickled ? kPickledWeights
                                     : kSafetensorsName,
                        config ? kSafetensorsName : kConfigName,
                        config ? ""
                               : ". TorchTitan's last_save_in_hf writes none: name a folder that has it "
                                 "(convert-checkpoint --assets; a run has its own model)");
    }
    throw UserError(
        "{} holds no model: looked for {} (a step), whole step-NNNNNNNN folders, also in {}/ (a run), {} "
        "with {} (Hugging Face), .metadata (torch.distributed.checkpoint) and {} (Meta); it holds {}",
        folder.string(), kManifestName, kCheckpointFolder, kConfigName, kSafetensorsName, kMetaParameters,
        contents(folder));
}

ModelSource open_folder(const fs::path& folder, const OpenOptions& options) {
    if (is_there(folder / kManifestName)) return open_step(folder);
    if (const auto steps = folder_of_steps(folder)) {
        if (const auto step = newest_step(*steps)) return open_step(*step);
    }
    if (const auto iteration = megatron_folder(folder)) return open_megatron(*iteration, options);
    if (pytorch::is_distributed_checkpoint(folder)) return open_distributed(folder, options);
    for (const char* name : {kSafetensorsName, kSafetensorsIndexName, kConfigName})
        refuse_broken_link(folder / name);
    const bool weights = has_named_weights(folder);
    for (const fs::path& place : {folder, folder / kCheckpointFolder}) {
        if (weights) break;
        if (const auto step = newest_titan_step(place, options.quiet)) return open_folder(*step, options);
    }
    // Mistral's folders on the hub have a params.json beside the files of Hugging Face.
    const bool is_described = weights && is_there(folder / kConfigName);
    const bool is_of_meta = is_there(folder / kMetaParameters) && !is_described;
    if (is_of_meta && (!weights || is_there(folder / kMetaWeights))) return open_meta(folder, options);
    return open_named_weights(folder, options);
}

}  // namespace

const char* name(Form form) {
    switch (form) {
        case Form::Sharded:
            return "sharded";
        case Form::Full:
            return "full";
        case Form::Distributed:
            return "dcp";
        case Form::Meta:
            return "meta";
        default:
            return "hf";
    }
}

bool is_there(const fs::path& path) {
    std::error_code failed;
    return fs::exists(path, failed);
}

ModelSource open_model(const fs::path& path, const OpenOptions& options) {
    refuse_broken_link(path);
    std::error_code failed;
    const fs::file_type type = fs::status(path, failed).type();
    if (type == fs::file_type::none) throw UserError("cannot read {}: {}", path.string(), failed.message());
    if (type == fs::file_type::not_found) {
        throw UserError(
            "\"{}\" does not exist; a model is a folder or file on this machine: a run's folder, a step's, a "
            "full file, or a Hugging Face folder (its name on the hub is not looked up)",
            path.string());
    }
    // "run/step-00000100/" becomes "run/step-00000100", because the code below reads the folder's name.
    const fs::path place = checkpoint::without_slash(path);
    if (fs::is_directory(place)) return open_folder(place, options);
    const std::string file = place.filename().string();
    if (place.extension() == ".safetensors" || file == kConfigName || file == kSafetensorsIndexName ||
        file.starts_with("pytorch_model") || file.starts_with("consolidated.")) {
        throw UserError("{} is one file of a model; give its folder, which has the others too",
                        place.string());
    }
    if (place.filename() == kManifestName) {
        throw UserError("{} is a step's manifest; give its folder", place.string());
    }
    return open_checkpoint(place, Form::Full);
}

std::string manifest_of(const ModelSource& source) {
    if (source.form == Form::Sharded) return checkpoint::to_json(source.checkpoint->manifest());
    return source.form == Form::Distributed ? pytorch::read_metadata(source.path) : "";
}

ModelSource open_known_step(const fs::path& path, const std::string& manifest) {
    return source_of(std::make_unique<Checkpoint>(path, manifest), path, Form::Sharded);
}

std::optional<fs::path> folder_of_steps(const fs::path& path) {
    if (is_there(path / kManifestName)) return std::nullopt;
    for (const fs::path& place : {path, path / kCheckpointFolder}) {
        std::error_code failed;
        if (fs::is_directory(place, failed) && newest_step(place)) return place;
    }
    return std::nullopt;
}

bool is_asset(const std::string& name) { return std::ranges::find(kAssets, name) != kAssets.end(); }

std::vector<checkpoint::Asset> assets_in(const fs::path& folder) {
    std::vector<checkpoint::Asset> assets;
    std::error_code failed;
    if (!fs::is_directory(folder, failed)) return assets;
    for (const char* name : kAssets) {
        refuse_broken_link(folder / name);
        if (is_there(folder / name)) assets.push_back({name, read_text(folder / name, kMaxAssetBytes)});
    }
    return assets;
}

std::vector<checkpoint::Asset> read_assets(const ModelSource& source) {
    if (!source.checkpoint) return assets_in(source.assets);
    std::vector<checkpoint::Asset> assets;
    for (const checkpoint::StoredAsset& stored : source.checkpoint->manifest().assets)
        assets.push_back({stored.name, source.checkpoint->asset(stored.name)});
    return assets;
}

std::unique_ptr<tokenizer::Tokenizer> open_tokenizer(const ModelSource& source) {
    tokenizer::FolderFiles files;
    for (checkpoint::Asset& asset : read_assets(source)) files[asset.name] = std::move(asset.bytes);
    return tokenizer::parse_tokenizer(source.path, files);
}

}  // namespace argosy::interop

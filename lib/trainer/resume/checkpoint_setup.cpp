#include "resume/checkpoint_setup.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/program.h"
#include "config/print.h"
#include "config/schema.h"
#include "interop/model_source.h"

namespace argosy::resume {
namespace {

/// Keys of [checkpoint] that have an effect only if the run saves.
constexpr const char* kSavingKeys[] = {"interval",
                                       "keep_latest_k",
                                       "keep_every",
                                       "async_mode",
                                       "enable_first_step_checkpoint",
                                       "last_save_model_only",
                                       "last_save_in_hf",
                                       "export_dtype"};

std::vector<std::string> changed_saving_keys(const config::JobConfig& config) {
    std::vector<std::string> names;
    for (const std::string name : kSavingKeys) {
        const config::Field& field = *config::find_field("checkpoint." + name);
        if (field.get(config) != field.get(config::JobConfig{})) names.push_back(field.key);
    }
    return names;
}

/// The context length to write into the checkpoint's config.json. A preset trained from scratch gets seq_len,
/// because plain rotary embedding does not extrapolate to positions beyond the training sequences. A longer
/// context is valid if a config.json or the loaded weights state it, or if the frequencies are scaled: scaled
/// frequencies are made for the published context, and transformers requires a context longer than
/// original_max_position_embeddings for them.
int64_t max_context(const config::JobConfig& config, const model::ModelSpec& spec, const Start& start) {
    const bool said = model::has_hugging_face_config(config.model.hf_assets_path) || spec.rope_scaling;
    return std::max({config.training.seq_len, start.max_context, said ? spec.max_context : 0});
}

}  // namespace

SaveOptions save_options(const config::JobConfig& config, const model::ModelSpec& spec,
                         const layout::MeshShape& mesh, const Start& start, int64_t final_step) {
    SaveOptions options{.checkpoint = config.checkpoint,
                        .folder = steps_folder(config),
                        .initial_step = start.position.step,
                        .final_step = final_step,
                        .stall_seconds = static_cast<double>(config.comm.storage_timeout_seconds)};
    if (!config.checkpoint.saves()) return options;
    model::ModelSpec saved = spec;
    saved.max_context = max_context(config, spec, start);
    options.description = {.program = version(),
                           .mesh = mesh.name(),
                           .model = model::hugging_face_config(saved),
                           .config = config::print_toml(config)};
    options.assets = interop::assets_in(config.model.hf_assets_path);
    if (options.assets.empty()) options.assets = start.assets;
    return options;
}

void log_idle_checkpoint_keys(const config::JobConfig& config) {
    const config::Checkpoint& checkpoint = config.checkpoint;
    const std::vector<std::string> idle =
        checkpoint.saves() ? std::vector<std::string>() : changed_saving_keys(config);
    if (!idle.empty()) {
        spdlog::info(
            "{} {} no effect: {}", fmt::join(idle, ", "), idle.size() == 1 ? "has" : "have",
            checkpoint.load_only ? "checkpoint.load_only saves nothing" : "checkpoint.enable is false");
    }
    const bool loads = checkpoint.enable || !checkpoint.initial_load_model_only;
    if (!checkpoint.exclude_from_loading.empty() && !loads) {
        spdlog::info(
            "checkpoint.exclude_from_loading has no effect: only weights are loaded without "
            "checkpoint.enable");
    }
    if (checkpoint.saves() && checkpoint.keep_every && checkpoint.keep_latest_k == 0) {
        spdlog::info("checkpoint.keep_every has no effect: checkpoint.keep_latest_k = 0 keeps all steps");
    }
}

}  // namespace argosy::resume

#include "going_home.h"

#include <algorithm>
#include <regex>

#include "base/error.h"
#include "base/log.h"
#include "base/output.h"
#include "config/choices.h"
#include "config/parse.h"
#include "config/saved.h"
#include "model/units.h"
#include "setup/options.h"
#include "setup/step_options.h"
#include "train/lr_schedule.h"
#include "train/rates.h"

namespace argosy {
namespace {

using interop::ModelSource;

/// The configuration of the source's run. UserError if it is nowhere.
config::JobConfig run_config(const std::string& file, const ModelSource& source) {
    if (!file.empty()) return config::parse_command_line({"--config", file}).config;
    const std::string place = source.path.string(), &text = source.description->config;
    const char* remedy = "name the run's configuration (--config), or omit the optimizer (--model-only)";
    if (text.empty()) {
        throw UserError("{} does not say the learning rate and weight decay of its optimizer; {}", place,
                        remedy);
    }
    try {
        return config::parse_toml(text, "the configuration in " + place);
    } catch (const UserError& error) {
        throw UserError("{}; {}", error.what(), remedy);
    }
}

/// TorchTitan loads one rate and one weight decay for each of its groups: those of its first parameter.
void warn_of_groups(const interop::OptimizerSettings& settings) {
    const auto& first = settings.parameters.begin()->second;
    const auto others =
        std::ranges::count_if(settings.parameters, [&](const auto& each) { return each.second != first; });
    if (others == 0) return;
    spdlog::warn(
        "{} of {} parameters have another learning rate or weight decay than {}: TorchTitan takes those of "
        "the first parameter of each of its groups, so give it groups like those here (norms do not decay "
        "unless optimizer.decay_all_parameters is true)",
        others, settings.parameters.size(), settings.parameters.begin()->first);
}

/// Refuses, or says, what TorchTitan's optimizers do not have.
void check_optimizer(const config::Optimizer& optimizer, const ModelSource& source,
                     interop::TorchTitanNames names) {
    const bool is_muon = optimizer.name == config::OptimizerName::Muon;
    const bool has_momenta = std::ranges::any_of(source.tensors->tensors(), [](const auto& tensor) {
        return tensor.name.starts_with("optimizer/momentum/");
    });
    if (is_muon != has_momenta) {
        throw UserError(
            "{} has the states of {}, but the configuration is of a run with {}; name its run's (--config)",
            source.path.string(), has_momenta ? "Muon" : "AdamW", is_muon ? "Muon" : "AdamW");
    }
    if (names == interop::TorchTitanNames::V02) {
        const char* missing = is_muon                             ? "Muon"
                              : interop::unties_head(source.spec) ? "Llama whose head is the embedding table"
                                                                  : nullptr;
        if (missing)
            throw UserError("TorchTitan 0.2 has no {}; add --model-only, or leave out --dcp-names", missing);
    }
    if (!is_muon) return;
    if (optimizer.muon_adjust_lr == config::MuonAdjustLr::Spectral)
        throw UserError("TorchTitan's Muon has no optimizer.muon_adjust_lr = spectral; add --model-only");
    if (optimizer.muon_split != config::MuonSplit::Projection || optimizer.muon_ns_dtype || optimizer.qk_clip)
        spdlog::warn(
            "TorchTitan's Muon has no optimizer.muon_split, muon_ns_dtype and qk_clip: its updates are other "
            "ones than this run's");
}

/// The digits N of the first "step-N" in a folder's name: TorchTitan takes the folder for that step, also
/// step-5000.partial and step-5000-home. Empty if there are none.
std::string titan_number(const std::string& name) {
    std::smatch found;
    return std::regex_search(name, found, std::regex("step-([0-9]+)")) ? found[1].str() : "";
}

}  // namespace

interop::OptimizerSettings settings_at_home(const std::string& file, const ModelSource& source,
                                            interop::TorchTitanNames names) {
    const config::JobConfig config = run_config(file, source);
    check_optimizer(config.optimizer, source, names);
    if (config.training.max_tokens) {
        throw UserError(
            "training.max_tokens ends the run, and its learning rate with it, which TorchTitan has not; name "
            "a configuration with training.steps in its place (--config)");
    }
    const train::LrSchedule schedule(setup::lr_schedule_options(config, config.training.steps));
    const train::StepOptions options = setup::step_options(config, source.spec);
    interop::OptimizerSettings settings{
        .lr = config.optimizer.lr,
        .next_lr = schedule.at_step(source.description->step + 1),
        .beta1 = config.optimizer.beta1,
        .beta2 = config.optimizer.beta2,
        .eps = config.optimizer.eps,
        .momentum = config.optimizer.muon_momentum,
        .nesterov = config.optimizer.muon_nesterov,
        .ns_steps = config.optimizer.muon_ns_steps,
        .adjust_lr =
            config::one_of(config.optimizer.muon_adjust_lr, {"match_rms_adamw", "original", "spectral"})};
    for (const layout::ParamSpec& parameter : model::model_parameters(source.spec)) {
        const auto& [lr_factor, weight_decay] = train::rates_of(parameter, options);
        settings.parameters[parameter.name] = {lr_factor, weight_decay};
    }
    warn_of_groups(settings);
    return settings;
}

void check_titan_name(const std::filesystem::path& path, const ModelSource& source, bool has_states) {
    const std::string name = path.filename();
    if (titan_number(name).empty()) return;
    // TorchTitan loads the weights alone from step 0
    const std::string right = fmt::format("step-{}", has_states ? source.description->step : 0);
    if (name != right) {
        throw UserError(
            "TorchTitan would take {} for another step than it is; name it {}, or without a number of a step",
            path.string(), right);
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder_of(path))) {
        const std::string other = entry.path().filename();
        if (other == name || titan_number(other).empty()) continue;
        throw UserError(
            "{} lies beside the steps of a run, such as {}, where TorchTitan would load it while it is being "
            "written; write it to another folder of the same disk, and move it there",
            path.string(), other);
    }
}

}  // namespace argosy

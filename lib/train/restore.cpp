#include "train/restore.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/step_folder.h"
#include "interop/model_source.h"
#include "model/model_spec.h"
#include "train/joint_work.h"
#include "train/loaded_parts.h"
#include "train/tensor_loading.h"

namespace argosy::train {
namespace {

namespace fs = std::filesystem;
using Found = interop::ModelSource;

constexpr size_t kFaultsInLog = 8;  // of one checkpoint

class Restorer {
  public:
    Restorer(const config::JobConfig& config, const mesh::MeshShape& mesh, comm::Communicator& control,
             RunState& state)
        : config_(config), mesh_(mesh), control_(control), state_(state), work_(control) {}

    std::optional<Start> resume();
    Start begin_with(const fs::path& path);

  private:
    std::vector<int64_t> steps_to_try(const fs::path& folder);
    std::vector<std::string> open(const fs::path& path, Found& found);
    void warn_of_faults(const fs::path& step, const std::vector<std::string>& faults) const;
    void tell_of_repetition(int64_t step) const;
    Start load(const Found& found, const LoadedParts& parts);
    void load_tensors(const Found& found, const LoadedParts& parts);
    bool speaks() const { return control_.rank() == 0; }

    const config::JobConfig& config_;
    const mesh::MeshShape& mesh_;
    comm::Communicator& control_;
    RunState& state_;
    JointWork work_;
};

/// The newest first.
std::vector<int64_t> Restorer::steps_to_try(const fs::path& folder) {
    std::vector<int64_t> steps;
    work_.run([&] {
        if (speaks()) steps = checkpoint::whole_steps(folder);
    });
    steps = as_rank_0_knows(control_, steps);
    std::ranges::reverse(steps);
    const int64_t wanted = config_.checkpoint.load_step;
    if (wanted == config::Checkpoint::kNewest) return steps;
    if (std::ranges::find(steps, wanted) != steps.end()) return {wanted};
    throw UserError(
        "checkpoint.load_step = {} is not in {}; {}", wanted, folder.string(),
        steps.empty() ? "no step is" : fmt::format("the steps there are {}", fmt::join(steps, ", ")));
}

/// Opens it on every rank and, if that is wanted, verifies it. What is wrong, the same on all ranks; none: it
/// is sound.
std::vector<std::string> Restorer::open(const fs::path& path, Found& found) {
    std::string own;
    work_.run([&] {
        try {
            found = interop::open_model(path);
            if (!config_.checkpoint.verify_on_load || found.checkpoint == nullptr) return;
            own = fmt::format("{}",
                              fmt::join(found.checkpoint->faults(control_.rank(), control_.size()), "\n"));
        } catch (const Error& error) {
            own = error.what();
        }
    });
    std::set<std::string> faults;  // what is wrong with the manifest every rank says
    for (const std::string& text : texts_of_all(control_, own)) {
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);) faults.insert(line);
    }
    return {faults.begin(), faults.end()};
}

void Restorer::warn_of_faults(const fs::path& step, const std::vector<std::string>& faults) const {
    if (!speaks()) return;
    spdlog::error("{} IS NOT SOUND and is passed over:", step.string());
    for (size_t i = 0; i < std::min(faults.size(), kFaultsInLog); ++i) spdlog::error("  {}", faults[i]);
    if (faults.size() > kFaultsInLog) spdlog::error("  and {} more", faults.size() - kFaultsInLog);
}

/// What is asked for holds at every start, and a chain of jobs starts again and again.
void Restorer::tell_of_repetition(int64_t step) const {
    if (!speaks()) return;
    if (config_.checkpoint.load_step != config::Checkpoint::kNewest) {
        spdlog::warn(
            "checkpoint.load_step = {}: each start with it goes back there; leave it out of a job that is "
            "started again",
            step);
    }
    if (!config_.checkpoint.exclude_from_loading.empty()) {
        spdlog::warn(
            "checkpoint.exclude_from_loading: each start with it leaves that out again; leave it out of a "
            "job that is started again");
    }
}

std::optional<Start> Restorer::resume() {
    const fs::path folder = steps_folder(config_);
    const std::vector<int64_t> steps = steps_to_try(folder);
    std::string last_fault;
    for (const int64_t step : steps) {
        const fs::path path = checkpoint::step_path(folder, step);
        Found found;
        std::vector<std::string> faults = open(path, found);
        if (faults.empty() && !found.description)
            faults = {path.string() + " is a model, and no step of a run"};
        if (faults.empty()) {
            tell_of_repetition(step);
            Start start = load(found, parts_to_resume(config_, mesh_, *found.description));
            start.resumed = true;
            start.last_own_step = start.position.step;
            return start;
        }
        warn_of_faults(path, faults);
        last_fault = faults.front();
    }
    if (steps.empty()) return std::nullopt;
    if (config_.checkpoint.load_step != config::Checkpoint::kNewest) {
        throw UserError("step {} in {} is not sound: {}; choose another as checkpoint.load_step",
                        steps.front(), folder.string(), last_fault);
    }
    throw UserError(
        "none of the {} steps in {} is sound ({}); to start afresh, remove them, or set checkpoint.folder to "
        "another "
        "folder",
        steps.size(), folder.string(), last_fault);
}

Start Restorer::begin_with(const fs::path& path) {
    Found found;
    const std::vector<std::string> faults = open(path, found);
    if (!faults.empty()) throw UserError("{}", faults.front());
    if (config_.checkpoint.initial_load_in_hf && found.form != interop::Form::HuggingFace) {
        throw UserError(
            "checkpoint.initial_load_in_hf is set, but {} is a checkpoint of ours ({}); leave it out",
            found.path.string(), interop::name(found.form));
    }
    return load(found, parts_to_begin_with(config_, found.description, found.path.string()));
}

void Restorer::load_tensors(const Found& found, const LoadedParts& parts) {
    std::vector<HeldTensor> tensors = state_.weights();
    if (parts.moments) tensors.insert(tensors.end(), state_.moments().begin(), state_.moments().end());
    work_.run([&] { train::load_tensors(*found.tensors, tensors); });
    state_.weights_changed();
    const std::string converted = conversions(*found.tensors, tensors);
    if (!converted.empty() && speaks()) {
        spdlog::warn("{} holds other element types than this run: {}", found.path.string(), converted);
    }
}

Start Restorer::load(const Found& found, const LoadedParts& parts) {
    const auto differences = model::differences(found.spec, state_.spec());
    if (!differences.empty()) {
        throw UserError("{} is of another model than the one that is trained: {}", found.path.string(),
                        fmt::join(differences, "; "));
    }
    load_tensors(found, parts);
    Start start{.max_context = found.spec.max_context};
    if (parts.any()) {
        start.position = restore_scalars(*found.description, found.path.string(), parts, state_);
        log_differences(config_, mesh_, *found.description);
    }
    work_.run([&] {
        if (speaks()) start.assets = interop::read_assets(found);
    });
    const Position& at = start.position;
    spdlog::info("{} {}: {} steps are done, with {} samples of {} tokens in all",
                 parts.any() ? "resumed from" : "began with the weights of", found.path.string(), at.step,
                 at.samples, at.tokens);
    return start;
}

}  // namespace

fs::path steps_folder(const config::JobConfig& config) {
    return fs::path(config.job.dump_folder) / config.checkpoint.folder;
}

Start restore(const config::JobConfig& config, const mesh::MeshShape& mesh, comm::Communicator& control,
              RunState& state) {
    Restorer restorer(config, mesh, control, state);
    const config::Checkpoint& checkpoint = config.checkpoint;
    const std::string& path = checkpoint.initial_load_path.empty() && checkpoint.initial_load_in_hf
                                  ? config.model.hf_assets_path
                                  : checkpoint.initial_load_path;
    if (checkpoint.enable) {
        if (auto start = restorer.resume()) {
            if (!path.empty()) spdlog::info("{} is not loaded: the run has steps of its own", path);
            return *std::move(start);
        }
    }
    Start start;
    if (!path.empty()) {
        start = restorer.begin_with(path);
    } else if (checkpoint.enable) {
        spdlog::info("no step in {}: the run starts afresh", steps_folder(config).string());
    }
    if (checkpoint.enable) start.last_own_step = 0;
    return start;
}

}  // namespace argosy::train

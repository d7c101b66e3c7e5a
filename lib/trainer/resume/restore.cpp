#include "resume/restore.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/step_folder.h"
#include "comm/values.h"
#include "gpu/device.h"
#include "interop/conversion.h"
#include "interop/model_source.h"
#include "interop/safetensors.h"
#include "model/model_spec.h"
#include "resume/joint_opener.h"
#include "resume/joint_work.h"
#include "resume/loaded_parts.h"
#include "setup/options.h"

namespace argosy::resume {
namespace {

namespace fs = std::filesystem;
using interop::ModelSource;

constexpr size_t kFaultsInLog = 8;  // maximum for one checkpoint

class Restorer {
  public:
    Restorer(const config::JobConfig& config, const layout::MeshShape& mesh, comm::Communicator& control,
             HeldWeights& weights, RunState* state)
        : config_(config),
          mesh_(mesh),
          control_(control),
          weights_(weights),
          state_(state),
          work_(control, config.comm.storage_timeout_seconds),
          opener_(config, weights.spec(), mesh, control, work_) {}

    std::optional<Start> resume();
    void refuse_steps();
    Start begin_with(const fs::path& path);
    void load_weights(const fs::path& path);

  private:
    using ChooseParts = std::function<LoadedParts(const ModelSource&)>;

    std::vector<int64_t> newest_first(const fs::path& folder);
    std::vector<int64_t> steps_to_try(const fs::path& folder);
    std::vector<fs::path> places_of(const std::vector<int64_t>& steps, const fs::path& folder);
    std::vector<fs::path> places_to_try(const fs::path& path);
    std::optional<Start> load_first_intact(const std::vector<fs::path>& places, Want want,
                                           const ChooseParts& choose);
    Faults load_and_verify(const ModelSource& source, const LoadedParts& parts);
    Faults load_tensors(const ModelSource& source, const LoadedParts& parts);
    Start load_rest(const ModelSource& source, const LoadedParts& parts, double started);
    void check_model(const ModelSource& source) const;
    void note_faults(const fs::path& place, bool aloud);
    [[noreturn]] void fail(const std::string& what, const std::string& remedy) const;
    void warn_of_repetition(int64_t step) const;
    bool is_rank_0() const { return control_.rank() == 0; }

    const config::JobConfig& config_;
    const layout::MeshShape& mesh_;
    comm::Communicator& control_;
    HeldWeights& weights_;
    RunState* state_;  // null: only weights are loaded
    JointWork work_;
    JointOpener opener_;
    Faults faults_;             // of the checkpoint that was tried last
    int64_t loaded_bytes_ = 0;  // of the tensors that this rank has loaded
    /// First fault of the first skipped checkpoint that could not be read. The checkpoint may be intact.
    std::optional<std::string> unreadable_fault_;
};

/// COLLECTIVE: the whole steps that rank 0 sees in `folder`, newest first.
std::vector<int64_t> Restorer::newest_first(const fs::path& folder) {
    std::vector<int64_t> steps;
    work_.run([&] {
        if (is_rank_0()) steps = checkpoint::whole_steps(folder);
    });
    steps = comm::broadcast(control_, steps);
    std::ranges::reverse(steps);
    return steps;
}

std::vector<int64_t> Restorer::steps_to_try(const fs::path& folder) {
    const std::vector<int64_t> steps = newest_first(folder);
    const int64_t wanted = config_.checkpoint.load_step;
    if (wanted == config::Checkpoint::kNewest) return steps;
    if (std::ranges::find(steps, wanted) != steps.end()) return {wanted};
    throw UserError(
        "checkpoint.load_step = {} is not in {}; {}", wanted, folder.string(),
        steps.empty() ? "no step is" : fmt::format("the steps there are {}", fmt::join(steps, ", ")));
}

/// COLLECTIVE: the folders of the steps, as rank 0 finds them.
std::vector<fs::path> Restorer::places_of(const std::vector<int64_t>& steps, const fs::path& folder) {
    std::vector<fs::path> places;
    work_.run([&] {
        for (const int64_t step : steps)
            places.push_back(is_rank_0() ? checkpoint::step_path(folder, step) : fs::path());
    });
    for (fs::path& place : places) place = comm::broadcast_text(control_, place.string());
    return places;
}

/// COLLECTIVE: the paths of the steps, newest first, if `path` is a run's folder of steps; else `path` alone.
std::vector<fs::path> Restorer::places_to_try(const fs::path& path) {
    fs::path folder;
    work_.run([&] {
        if (is_rank_0()) folder = interop::folder_of_steps(path).value_or(fs::path());
    });
    folder = comm::broadcast_text(control_, folder.string(), 0);
    if (folder.empty()) return {path};
    return places_of(newest_first(folder), folder);
}

/// COLLECTIVE: loads the parts, and verifies all other bytes of the checkpoint with
/// checkpoint.verify_on_load: a slab that load_tensors() has read whole is verified by that. Returns the
/// faults; none if all is loaded.
Faults Restorer::load_and_verify(const ModelSource& source, const LoadedParts& parts) {
    Faults faults = load_tensors(source, parts);
    if (!config_.checkpoint.verify_on_load || faults.unreadable) return faults;
    Faults all = opener_.check_files(source, Check::Bytes);
    return all.texts.empty() ? faults : all;
}

/// Records, and logs if `aloud`, the faults of a checkpoint that was not loaded.
void Restorer::note_faults(const fs::path& place, bool aloud) {
    const std::vector<std::string>& texts = faults_.texts;
    if (faults_.unreadable && !unreadable_fault_) unreadable_fault_ = texts.front();
    if (!aloud || !is_rank_0()) return;
    spdlog::error("{} is not intact:", place.string());
    for (size_t i = 0; i < std::min(texts.size(), kFaultsInLog); ++i) spdlog::error("  {}", texts[i]);
    if (texts.size() > kFaultsInLog) spdlog::error("  and {} more", texts.size() - kFaultsInLog);
}

/// Ends the run because no intact checkpoint was found. Throws JobError if a checkpoint could not be read,
/// because that failure may be temporary and a job is started again after a JobError. Otherwise throws
/// UserError, because the user must choose.
void Restorer::fail(const std::string& what, const std::string& remedy) const {
    if (unreadable_fault_) {
        throw JobError("{}, but not all could be read ({}); start the job again once it can be read", what,
                       *unreadable_fault_);
    }
    throw UserError("{} ({}); {}", what, faults_.texts.front(), remedy);
}

/// Warns of settings that are wrong in a job that is started again, because each start applies them again.
void Restorer::warn_of_repetition(int64_t step) const {
    if (!is_rank_0()) return;
    if (config_.checkpoint.load_step != config::Checkpoint::kNewest) {
        spdlog::warn(
            "checkpoint.load_step = {}: each start with this setting goes back to that step; remove it from "
            "a job that is started again",
            step);
    }
    if (!config_.checkpoint.exclude_from_loading.empty()) {
        spdlog::warn(
            "checkpoint.exclude_from_loading: each start with this setting excludes these parts again; "
            "remove it from a job that is started again");
    }
}

/// Loads the first intact checkpoint among `places` and logs the faults of the checkpoints before it. Returns
/// nothing if none is intact; faults_ then has the faults of the last checkpoint. A damaged checkpoint may be
/// loaded in part, because the next checkpoint has the same tensors and overwrites them.
std::optional<Start> Restorer::load_first_intact(const std::vector<fs::path>& places, Want want,
                                                 const ChooseParts& choose) {
    unreadable_fault_.reset();
    for (const fs::path& place : places) {
        ModelSource source;
        const double started = seconds_now();
        faults_ = opener_.open(place, want, source);
        if (faults_.texts.empty()) faults_ = opener_.check_files(source, Check::Files);
        if (faults_.texts.empty()) {
            check_model(source);
            const LoadedParts parts = choose(source);
            faults_ = load_and_verify(source, parts);
            if (faults_.texts.empty()) return load_rest(source, parts, started);
        }
        note_faults(place, want == Want::OwnStep || places.size() > 1);
    }
    return std::nullopt;
}

std::optional<Start> Restorer::resume() {
    const fs::path folder = steps_folder(config_);
    const std::vector<int64_t> steps = steps_to_try(folder);
    if (steps.empty()) return std::nullopt;
    std::optional<Start> start =
        load_first_intact(places_of(steps, folder), Want::OwnStep, [&](const ModelSource& source) {
            warn_of_repetition(source.description->step);
            return parts_to_resume(config_, mesh_, *source.description);
        });
    if (start) {
        start->resumed = true;
        start->last_own_step = start->position.step;
        return start;
    }
    if (config_.checkpoint.load_step != config::Checkpoint::kNewest) {
        fail(fmt::format("step {} in {} is not intact", steps.front(), folder.string()),
             "choose another as checkpoint.load_step");
    }
    fail(fmt::format("none of the {} steps in {} is intact", steps.size(), folder.string()),
         "to start afresh, remove them, or set checkpoint.folder to another folder; if only optimizer "
         "states are damaged, convert-checkpoint --model-only saves the weights of a step, for "
         "checkpoint.initial_load_path of a new run");
}

/// COLLECTIVE: throws UserError if the run's folder has steps, for a run without checkpoint.enable. That run
/// would ignore the steps and add its lines, from step 1 on, to the metrics of the run that saved them.
void Restorer::refuse_steps() {
    const fs::path folder = steps_folder(config_);
    const std::vector<int64_t> steps = newest_first(folder);
    if (steps.empty()) return;
    throw UserError(
        "{} has steps up to {} of an earlier run, but checkpoint.enable is false, so this run would ignore "
        "them; set checkpoint.enable = true to resume, or job.dump_folder to another folder to start afresh",
        folder.string(), steps.front());
}

Start Restorer::begin_with(const fs::path& path) {
    const std::vector<fs::path> places = places_to_try(path);
    auto start = load_first_intact(places, Want::AnyModel, [&](const ModelSource& source) {
        if (config_.checkpoint.initial_load_in_hf && source.form != interop::Form::HuggingFace) {
            throw UserError(
                "checkpoint.initial_load_in_hf is set, but {} is not a Hugging Face folder ({}); remove the "
                "setting",
                source.path.string(), interop::name(source.form));
        }
        return parts_to_begin_with(config_, source.description, source.path.string(), source.weights_alone);
    });
    if (start) return *std::move(start);
    if (places.size() == 1) faults_.refuse();
    fail(fmt::format("none of the {} steps in {} is intact", places.size(), path.string()),
         "name another checkpoint.initial_load_path");
}

void Restorer::load_weights(const fs::path& path) {
    if (load_first_intact({path}, Want::AnyModel, [](const ModelSource&) { return LoadedParts{}; })) return;
    faults_.refuse();
}

void Restorer::check_model(const ModelSource& source) const {
    const auto differences = model::differences(source.spec, weights_.spec());
    if (differences.empty()) return;
    throw UserError("{} is of another model than the one that is trained: {}", source.path.string(),
                    fmt::join(differences, "; "));
}

/// Returns the faults of the tensors' bytes; none if all tensors are loaded.
Faults Restorer::load_tensors(const ModelSource& source, const LoadedParts& parts) {
    std::vector<HeldSlab> slabs = weights_.slabs();
    if (parts.optimizer) slabs.insert(slabs.end(), state_->states().begin(), state_->states().end());
    work_.run([&] { check_tensors(*source.tensors, slabs); });
    Faults faults = work_.find_faults([&]() -> std::vector<std::string> {
        load_slabs(*source.tensors, slabs);
        return {};
    });
    if (!faults.texts.empty()) return faults;
    loaded_bytes_ = 0;
    for (const HeldSlab& slab : slabs) loaded_bytes_ += slab.num_bytes();
    weights_.changed();
    const std::string converted = conversions(*source.tensors, slabs);
    if (state_ != nullptr && !converted.empty() && is_rank_0()) {
        spdlog::warn("{} holds other element types than this run: {}", source.path.string(), converted);
    }
    return {};
}

/// Restores the numbers and reads the tokenizer's files. `started`: when the checkpoint was opened.
Start Restorer::load_rest(const ModelSource& source, const LoadedParts& parts, double started) {
    Start start{.position = {.samples = config_.training.first_sample},
                .max_context = source.spec.max_context};
    const std::string cost = fmt::format("{:.3f} s for {} on this rank", seconds_now() - started,
                                         interop::bytes_text(loaded_bytes_));
    if (state_ == nullptr) {
        spdlog::info("loaded the weights of {}: {}", source.path.string(), cost);
        return start;
    }
    if (parts.any()) {
        const std::string place = source.path.string();
        const Fresh fresh{config_.training.first_sample,
                          setup::run_limits_options(config_, mesh_).tokens_per_step};
        start.position = restore_scalars(*source.description, place, parts, fresh, *state_);
        if (has_place(*source.description, parts, place)) {
            warn_of_other_samples(config_, *source.description, place, start.position.samples, *state_,
                                  control_);
        } else if (parts.dataloader && is_rank_0()) {
            spdlog::warn(
                "{} was saved by {}, whose place in the data has no meaning here: the run goes on at step {} "
                "with sample {} of its data, and counts the tokens as if all steps had its global batch. "
                "training.first_sample passes over samples that were trained on",
                place, source.description->program, start.position.step + 1, start.position.samples);
        }
        log_differences(config_, mesh_, *source.description);
    }
    work_.run([&] {
        if (is_rank_0()) start.assets = interop::read_assets(source);
    });
    const train::Position& at = start.position;
    spdlog::info("{} {}: {} steps are done, with {} samples of {} tokens in all; {}",
                 parts.any() ? "resumed from" : "began with the weights of", source.path.string(), at.step,
                 at.samples, at.tokens, cost);
    return start;
}

/// For a run that begins with random weights.
void warn_of_unused_weights(const fs::path& folder) {
    std::error_code unreadable;
    for (const char* const name : {interop::kSafetensorsName, interop::kSafetensorsIndexName}) {
        if (folder.empty() || !fs::exists(folder / name, unreadable)) continue;
        spdlog::warn(
            "the weights in {} (model.hf_assets_path) are not loaded: the run begins with random ones. "
            "checkpoint.initial_load_in_hf = true loads them",
            folder.string());
        return;
    }
}

}  // namespace

fs::path steps_folder(const config::JobConfig& config) {
    return fs::path(config.job.dump_folder) / config.checkpoint.folder;
}

Start restore(const config::JobConfig& config, const layout::MeshShape& mesh, comm::Communicator& control,
              RunState& state) {
    // This thread has queued the zeroing of the tensors on its stream. The thread that loads the tensors does
    // not wait for that stream.
    gpu::synchronize();
    Restorer restorer(config, mesh, control, state.weights(), &state);
    const config::Checkpoint& checkpoint = config.checkpoint;
    const std::string& path = checkpoint.initial_load_path.empty() && checkpoint.initial_load_in_hf
                                  ? config.model.hf_assets_path
                                  : checkpoint.initial_load_path;
    if (checkpoint.enable) {
        if (auto start = restorer.resume()) {
            if (!path.empty()) spdlog::info("{} is not loaded: the run has steps of its own", path);
            return *std::move(start);
        }
    } else {
        restorer.refuse_steps();
    }
    Start start{.position = {.samples = config.training.first_sample}};
    if (!path.empty()) {
        start = restorer.begin_with(path);
    } else {
        if (checkpoint.enable)
            spdlog::info("no step in {}: the run starts afresh", steps_folder(config).string());
        if (control.rank() == 0) warn_of_unused_weights(config.model.hf_assets_path);
    }
    if (checkpoint.enable) start.last_own_step = 0;
    return start;
}

void load_weights(const config::JobConfig& config, const layout::MeshShape& mesh, comm::Communicator& control,
                  HeldWeights& weights) {
    gpu::synchronize();  // as in restore()
    Restorer(config, mesh, control, weights, nullptr).load_weights(config.checkpoint.initial_load_path);
}

}  // namespace argosy::resume

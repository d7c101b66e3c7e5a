#include "resume/checkpointer.h"

#include <ATen/ops/tensor.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/program.h"
#include "base/raw_file.h"
#include "base/units.h"
#include "checkpoint/partial_folder.h"
#include "checkpoint/step_folder.h"
#include "checkpoint/tensor_file.h"
#include "comm/values.h"
#include "config/print.h"
#include "interop/model_source.h"
#include "interop/names.h"
#include "model/units.h"
#include "resume/save_plan.h"
#include "resume/saved_steps.h"
#include "setup/number_types.h"

namespace argosy::resume {
namespace {

namespace fs = std::filesystem;

std::array<int64_t, 2> random_numbers() {
    std::random_device device;
    return {static_cast<int64_t>(device()), static_cast<int64_t>(device())};
}

checkpoint::Hash nonce_of(const std::array<int64_t, 2>& nonce, int64_t step) {
    const std::string text = fmt::format("{} {}", fmt::join(nonce, " "), step);
    return checkpoint::hash_of(text);
}

fs::path place_of(const SaveOptions& options, int64_t step) {
    return options.folder / checkpoint::step_name(step);
}

fs::path export_place(const SaveOptions& options, int64_t step) {
    return place_of(options, step).string() + "-hf";
}

/// The context length to write into the checkpoint's config.json. A preset trained from scratch gets seq_len,
/// because plain rotary embedding does not extrapolate to positions beyond the training sequences. A longer
/// context is valid if a config.json or the loaded weights state it, or if the frequencies are scaled: scaled
/// frequencies are made for the published context, and transformers requires a context longer than
/// original_max_position_embeddings for them. The context of Longrope stays, for the attention factor follows
/// from it.
int64_t max_context(const config::JobConfig& config, const model::ModelSpec& spec, const Start& start) {
    using enum model::RopeScaling::Type;
    if (spec.rope_scaling && spec.rope_scaling->type == Longrope) return spec.max_context;
    const bool said = model::has_hugging_face_config(config.model.hf_assets_path) || spec.rope_scaling;
    return std::max({config.training.seq_len, start.max_context, said ? spec.max_context : 0});
}

}  // namespace

fs::path Checkpointer::Save::place() const { return place_of(*options, position.step); }

void Checkpointer::Save::make_folder() const {
    checkpoint::start_step(options->folder, position.step, plan.num_writers());
}

void Checkpointer::Save::write_shard() const {
    auto file = checkpoint::TensorFile::shard(checkpoint::partial_path(place()), nonce, plan, writer);
    for (size_t i = 0; i < bytes.size(); ++i) file.append(i, bytes[i]);
    file.finish();
}

void Checkpointer::Save::commit() const {
    checkpoint::Description description = options->description;
    description.step = position.step;
    description.model_only = model_only;
    description.state = state;
    checkpoint::commit_step(options->folder, description, nonce, plan, options->assets);
    // Retention keeps the highest step numbers. Later steps of an abandoned continuation are therefore set
    // aside first; otherwise retention would remove the new step.
    if (!set_aside_later_steps(options->folder, description.step)) return;
    const checkpoint::Retention retention{.keep_latest = options->checkpoint.keep_latest_k,
                                          .keep_every = options->checkpoint.keep_every.value_or(0)};
    checkpoint::remove_old_steps(options->folder, retention);
    remove_steps_set_aside(options->folder, description.step, retention);
}

Checkpointer::Checkpointer(SaveOptions options, comm::Communicator& control, const RunState& state)
    : options_(std::make_shared<SaveOptions>(std::move(options))),
      control_(control),
      state_(state),
      work_(control, options_->stall_seconds) {
    if (!saves()) return;
    nonce_ = comm::broadcast(control, random_numbers());
    weights_ = gather_tensors(state.cut_weights(), state.mesh(), control);
    states_ = gather_tensors(state.cut_states(), state.mesh(), control);
    work_.run(on_rank_0([this] {
        make_folders(options_->folder);
        // The remains of earlier starts use the space that is checked.
        checkpoint::remove_remains(options_->folder);
        require_space_for_step();
        const bool exports =
            options_->checkpoint.last_save_in_hf && options_->initial_step < options_->final_step;
        // An occupied path should fail the run at once rather than at its end.
        if (!exports) return;
        require_export_place(export_place(*options_, options_->final_step));
        if (state_.weights().has_router_biases() && !interop::has_router_biases(state_.spec())) {
            throw UserError(
                "checkpoint.last_save_in_hf = true, but the run has loaded biases of experts, and {} has no "
                "place for them in Hugging Face's format; remove the key",
                state_.spec().name);
        }
    }));
}

std::function<void()> Checkpointer::on_rank_0(std::function<void()> work) const {
    return control_.rank() == 0 ? std::move(work) : nullptr;
}

bool Checkpointer::is_due(int64_t step) const {
    const config::Checkpoint& checkpoint = options_->checkpoint;
    if (!saves() || is_last(step)) return false;  // finish() saves the last step
    return step % checkpoint.interval == 0 || (checkpoint.enable_first_step_checkpoint && step == 1);
}

void Checkpointer::before_step() {
    if (save_ && stage_ == Stage::Written) finish_save_under_way();
}

void Checkpointer::after_step(const train::Position& position) {
    ARGOSY_CHECK(!copy_->under_way(), "step {} changed what a save still copied", position.step);
    advance();
    if (is_due(position.step)) begin(position);
}

/// A disk without room for the next step should fail the run at once, and not after checkpoint.interval
/// steps.
void Checkpointer::require_space_for_step() const {
    const int64_t done = options_->initial_step, interval = options_->checkpoint.interval;
    if (done >= options_->final_step) return;
    // enable_first_step_checkpoint makes step 1 the first save.
    const bool first_is_last = (done / interval + 1) * interval >= options_->final_step && !is_due(done + 1);
    int64_t num_bytes = 0;
    for (const auto& tensor : plan_of(first_is_last && options_->checkpoint.last_save_model_only).tensors)
        num_bytes += tensor.info.num_bytes();
    require_space(options_->folder, num_bytes, "the next checkpoint of this run");
}

checkpoint::SavePlan Checkpointer::plan_of(bool model_only) const {
    std::vector<checkpoint::CutTensor> tensors = weights_;
    const auto& type = options_->checkpoint.export_dtype;
    if (!model_only) tensors.insert(tensors.end(), states_.begin(), states_.end());
    for (checkpoint::CutTensor& tensor : tensors)
        if (model_only && type && !model::is_router_bias(tensor.info.name))
            tensor.info.type = setup::element_type(*type);
    return save_plan(std::move(tensors), state_.mesh());
}

void Checkpointer::begin(const train::Position& position) {
    const double started = seconds_now();
    if (save_ && control_.rank() == 0 && !std::exchange(overlap_is_logged_, true)) {
        spdlog::warn(
            "training waits before it saves step {}, because step {} is still being written; a larger "
            "checkpoint.interval avoids that",
            position.step, save_->position.step);
    }
    finish_save_under_way();
    const auto save = std::make_shared<Save>();
    save->options = options_;
    save->position = position;
    save->model_only = is_last(position.step) && options_->checkpoint.last_save_model_only;
    save->state = to_json(state_.scalars(position));
    save->nonce = nonce_of(nonce_, position.step);
    save->plan = plan_of(save->model_only);
    save->writer = state_.writer(save->plan);
    std::vector<HeldSlab> held = state_.weights().slabs();
    held.insert(held.end(), state_.states().begin(), state_.states().end());
    save->copy = copy_;
    save->bytes = copy_->copy(written_slabs(held, save->plan, save->writer));
    save_ = save;
    started_ = started;
    stalled_seconds_ = seconds_now() - started;
    last_begun_ = position.step;
    stage_ = Stage::MakeFolder;
    work_.begin(on_rank_0([save] { save->make_folder(); }));
    log_memory();
    while (!is_async() && stage_ != Stage::Written) {
        advance();
        work_.pause();
    }
}

/// COLLECTIVE. Logs, once in a process, how much host memory the copies take.
void Checkpointer::log_memory() {
    if (std::exchange(memory_is_logged_, true)) return;
    const at::Tensor all = at::tensor({copy_->num_bytes()}, at::kLong), max = all.clone();
    const comm::Op ops[] = {
        {.kind = comm::OpKind::AllReduce, .out = all, .in = all},
        {.kind = comm::OpKind::AllReduce, .out = max, .in = max, .reduction = comm::Reduction::Max}};
    control_.run(ops);
    spdlog::info(
        "checkpoints take up to {:.3g} GiB of host memory on a rank, {:.3g} GiB on all, until the run ends",
        gibibytes(max.item<int64_t>()), gibibytes(all.item<int64_t>()));
}

void Checkpointer::advance() {
    if (!save_ || stage_ == Stage::Written || !work_.ended()) return;
    if (work_.failure()) give_up();
    switch (stage_) {
        case Stage::MakeFolder:
            stage_ = Stage::WriteShards;
            copy_->wait();  // done since the last update, if there was one
            return work_.begin([save = save_] { save->write_shard(); });
        case Stage::WriteShards:
            stage_ = Stage::Written;
            if (is_async()) begin_commit();
            return;
        case Stage::Written:
            return;
        case Stage::Commit:
            log_end();
            save_.reset();
            return;
    }
}

void Checkpointer::begin_commit() {
    stage_ = Stage::Commit;
    work_.begin(on_rank_0([save = save_] { save->commit(); }));
}

void Checkpointer::log_end() const {
    const double seconds = seconds_now() - started_;
    const std::string saved = fmt::format("step {} is saved in {} after {:.1f} s", save_->position.step,
                                          save_->place().string(), seconds);
    if (finish_started_) {
        spdlog::info("{}; training had ended, and the program waited {:.3f} s for it (not in the metrics)",
                     saved, seconds_now() - *finish_started_);
    } else {
        spdlog::info("{}; training waited {:.3f} s of them", saved, is_async() ? stalled_seconds_ : seconds);
    }
}

void Checkpointer::finish_save_under_way() {
    if (save_ && stage_ == Stage::Written) begin_commit();
    while (save_) {
        advance();
        if (save_) work_.pause();
    }
}

void Checkpointer::finish(const train::Position& position) {
    if (!saves()) return;
    finish_started_ = seconds_now();
    finish_save_under_way();
    // The step with which this process began is saved already, belongs to another run, or is step 0.
    if (position.step != last_begun_ && position.step != options_->initial_step) {
        finish_started_ = seconds_now();
        begin(position);
    }
    finish_save_under_way();
    if (is_last(position.step) && options_->checkpoint.last_save_in_hf) export_last(position.step);
}

void Checkpointer::give_up() {
    const JointWork::Failure failure = *work_.failure();
    const std::shared_ptr<const Save> save = std::exchange(save_, nullptr);
    // The work of all ranks has ended, so no rank writes to the folder any more.
    work_.run(on_rank_0([save] { checkpoint::remove_quietly(checkpoint::partial_path(save->place())); }));
    throw JobError(
        "the checkpoint of step {} was not written: rank {}: {}. Earlier checkpoints are unchanged; "
        "checkpoint.folder can name a folder on another disk",
        save->position.step, failure.rank, failure.reason);
}

/// Exports the last step. If an earlier process saved that step, exports it only if no export exists.
void Checkpointer::export_last(int64_t step) {
    const fs::path saved = place_of(*options_, step), place = export_place(*options_, step);
    work_.run(on_rank_0([&] {
        if (step != last_begun_ && (fs::exists(place) || !fs::exists(saved))) return;
        write_hugging_face(saved, place, options_->checkpoint.export_dtype);
        spdlog::info("step {} is exported to {}, in Hugging Face's format", step, place.string());
    }));
}

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
    if (config.checkpoint.last_save_in_hf && config.moe.bias_update_rate != 0 &&
        !interop::has_router_biases(spec)) {
        throw UserError(
            "checkpoint.last_save_in_hf = true, but {} has no place in Hugging Face's format for the biases "
            "that moe.bias_update_rate = {:g} makes; remove one of the keys",
            spec.name, config.moe.bias_update_rate);
    }
    options.assets = interop::assets_in(config.model.hf_assets_path);
    if (options.assets.empty()) options.assets = start.assets;
    return options;
}

}  // namespace argosy::resume

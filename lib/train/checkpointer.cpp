#include "train/checkpointer.h"

#include <ATen/ops/tensor.h>

#include <chrono>
#include <random>
#include <span>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/step_folder.h"
#include "train/element_types.h"
#include "train/export.h"
#include "train/saved_steps.h"

namespace argosy::train {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(2);

double gibibytes(double bytes) { return bytes / (1 << 30); }

std::vector<int64_t> random_numbers() {
    std::random_device device;
    return {static_cast<int64_t>(device()), static_cast<int64_t>(device())};
}

checkpoint::Hash set_of(const std::vector<int64_t>& nonce, int64_t step) {
    const std::string text = fmt::format("{} {}", fmt::join(nonce, " "), step);
    return checkpoint::hash_of(std::as_bytes(std::span(text)));
}

}  // namespace

Checkpointer::Checkpointer(SaveOptions options, comm::Communicator& control, const RunState& state)
    : options_(std::move(options)), control_(control), state_(state), work_(control) {
    if (!saves()) return;
    nonce_ = as_rank_0_knows(control, random_numbers());
    work_.run(speaks() ? [this] { prepare_folder(options_.folder); } : std::function<void()>());
}

bool Checkpointer::is_due(int64_t step) const {
    const config::Checkpoint& checkpoint = options_.checkpoint;
    if (!saves() || step == options_.final_step) return false;  // finish() saves the last one
    return step % checkpoint.interval == 0 || (checkpoint.enable_first_step_checkpoint && step == 1);
}

std::filesystem::path Checkpointer::step_folder(int64_t step) const {
    return options_.folder / checkpoint::step_name(step);
}

void Checkpointer::after_step(const Position& position) {
    advance();
    if (is_due(position.step)) begin(position);
}

std::vector<ShardPart> Checkpointer::parts_of(bool model_only) const {
    const auto& type = options_.checkpoint.export_dtype;
    if (model_only) {
        return shard_parts(state_.weights(), type ? std::optional(element_type(scalar_type(*type))) : std::nullopt);
    }
    std::vector<ShardPart> parts = shard_parts(state_.weights());
    for (ShardPart& part : shard_parts(state_.moments())) parts.push_back(std::move(part));
    return parts;
}

void Checkpointer::begin(const Position& position) {
    const double started = seconds_now();
    settle();
    const bool is_last = position.step == options_.final_step;
    const bool model_only = is_last && options_.checkpoint.last_save_model_only;
    Save& save = save_.emplace();
    save.position = position;
    save.model_only = model_only;
    save.state = to_json(state_.scalars(position));
    save.set = set_of(nonce_, position.step);
    save.parts = parts_of(model_only);
    save.bytes = copy_.copy(save.parts);
    save.started = started;
    save.stalled_seconds = seconds_now() - started;
    last_begun_ = position.step;
    work_.begin(speaks() ? [this] { make_folder(); } : std::function<void()>());
    state_memory();
    if (options_.checkpoint.async_mode == config::AsyncMode::Disabled) settle();
}

/// Once: what the copies take.
void Checkpointer::state_memory() {
    if (std::exchange(memory_stated_, true)) return;
    const at::Tensor all = at::tensor({copy_.num_bytes()}, at::kLong), largest = all.clone();
    const comm::Op ops[] = {{.kind = comm::OpKind::AllReduce, .out = all, .in = all},
                            {.kind = comm::OpKind::AllReduce,
                             .out = largest,
                             .in = largest,
                             .reduction = comm::Reduction::Max}};
    control_.run(ops);
    spdlog::info("checkpoints: a rank keeps at most {:.3f} GiB of host memory for its copy, all ranks {:.3f} GiB",
                 gibibytes(largest.item<double>()), gibibytes(all.item<double>()));
}

void Checkpointer::advance() {
    if (!save_ || !work_.ended()) return;
    if (work_.failure()) give_up();
    switch (save_->stage) {
        case Stage::MakeFolder:
            save_->stage = Stage::WriteShards;
            return work_.begin([this] { write_shard(); });
        case Stage::WriteShards:
            save_->stage = Stage::Commit;
            return work_.begin(speaks() ? [this] { commit(); } : std::function<void()>());
        case Stage::Commit:
            spdlog::info("step {} is saved in {}: {:.1f} s, of which training stood still for {:.3f} s",
                         save_->position.step, step_folder(save_->position.step).string(),
                         seconds_now() - save_->started, save_->stalled_seconds);
            save_.reset();
            return;
    }
}

void Checkpointer::settle() {
    while (save_) {
        advance();
        if (save_) std::this_thread::sleep_for(kBetweenLooks);
    }
}

void Checkpointer::finish(const Position& position) {
    if (!saves()) return;
    settle();
    // A run that was done before it began has nothing new.
    if (position.step == last_begun_ || position.step == options_.first_step) return;
    begin(position);
    settle();
    if (position.step == options_.final_step && options_.checkpoint.last_save_in_hf) {
        export_hugging_face(position.step);
    }
}

void Checkpointer::give_up() {
    const JointWork::Failure failure = *work_.failure();
    const int64_t step = std::exchange(save_, std::nullopt)->position.step;
    // All ranks have ended their part: nobody writes into the folder any more.
    work_.run(speaks() ? [this, step] { checkpoint::remove_quietly(checkpoint::partial_path(step_folder(step))); }
                       : std::function<void()>());
    throw JobError(
        "the checkpoint of step {} was not written: rank {}: {}. Earlier checkpoints are as they were. Free some "
        "space, or set checkpoint.folder to another disk",
        step, failure.rank, failure.reason);
}

void Checkpointer::make_folder() const { checkpoint::start_step(options_.folder, save_->position.step); }

void Checkpointer::write_shard() const {
    const std::filesystem::path folder = checkpoint::partial_path(step_folder(save_->position.step));
    std::vector<checkpoint::Piece> pieces;
    for (const ShardPart& part : save_->parts) pieces.push_back(part.piece);
    auto writer = checkpoint::FileWriter::shard(
        folder / checkpoint::shard_name(control_.rank(), control_.size()), save_->set, std::move(pieces));
    for (size_t i = 0; i < save_->bytes.size(); ++i) writer.append(i, save_->bytes[i]);
    writer.finish();
}

void Checkpointer::commit() const {
    checkpoint::Description description = options_.description;
    description.step = save_->position.step;
    description.model_only = save_->model_only;
    description.state = save_->state;
    checkpoint::commit_step(options_.folder, description, save_->set, control_.size(), options_.assets);
    set_aside_later_steps(options_.folder, description.step);
    remove_superfluous_steps(options_.folder, {.keep_latest = options_.checkpoint.keep_latest_k,
                                               .keep_every = options_.checkpoint.keep_every.value_or(0)});
}

void Checkpointer::export_hugging_face(int64_t step) {
    const auto write = [this, step] {
        write_hugging_face(step_folder(step), options_.checkpoint.export_dtype);
    };
    work_.run(speaks() ? write : std::function<void()>());
}

}  // namespace argosy::train

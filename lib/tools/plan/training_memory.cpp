#include "plan/training_memory.h"

#include <fmt/format.h>

#include <exception>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "observe/step_timer.h"
#include "plan/shortage_text.h"
#include "setup/process.h"
#include "watch/watchdog.h"

namespace argosy::plan {
namespace {

using observe::Shortage;

constexpr const char* kFailureFolder = "out-of-memory";
/// The job ends after this time, whether or not the other ranks have written their snapshots.
constexpr double kMaxSecondsOfAnswers = 5;

}  // namespace

train::Trainer MemoryAccount::make_trainer(const train::TrainerOptions& options, comm::Mesh& mesh,
                                           const observe::MemoryMeter& memory) {
    tensors_ = large_tensors(options, mesh);
    memory_ = memory;
    world_ = &mesh.world();
    rank_ = world_->rank();
    enter_phase("the construction of the model");
    if (watch::Watchdog* watchdog = world_->watchdog())
        watchdog->answer_calls_with([self = shared_from_this()] { self->answer(); });
    try {
        return train::Trainer(options, mesh);
    } catch (...) {
        plan_memory(options, mesh);
        throw;
    }
}

/// If memory has run out, asks the other ranks for their snapshots, while they wait for this rank.
void MemoryAccount::call_others() {
    watch::Watchdog* const watchdog = world_->watchdog();
    if (world_->size() == 1 || watchdog == nullptr || !observe::find_shortage()) return;
    has_called_ = true;
    {
        const std::lock_guard lock(mutex_);
        is_written_ = true;  // by explain()
    }
    watchdog->call_all_ranks();
}

/// Writes the snapshot of a rank that another rank has called, unless this rank's memory has run out too.
void MemoryAccount::answer() {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_written_, true)) return;
    try {
        write_snapshot(
            config_, kFailureFolder, memory_->snapshot(),
            {.rank = rank_, .of_caller = false, .held = held_, .named = named_, .tensors = tensors_});
    } catch (const std::exception&) {  // memory may be short here as well
    }
}

void MemoryAccount::plan_memory(const train::TrainerOptions& options, const comm::Mesh& mesh) {
    try {
        planned_ = plan::planned_bytes(options, mesh.shape(), mesh.world().rank());
    } catch (const std::exception&) {  // the options may be what was refused, or memory is short
    }
}

void MemoryAccount::record(train::Trainer& trainer) {
    try {
        if (const auto* op = trainer.step().executor().failed_op()) under_way_ = *op;
        const std::lock_guard lock(mutex_);
        held_ = plan::held_bytes(trainer.model(), trainer.step().optimizer());
        named_ = named_blocks(trainer.model(), trainer.step().optimizer());
    } catch (const std::exception&) {  // recording may itself run out of memory
    }
}

void MemoryAccount::wait_for_answers() const {
    // call_others() sets has_called_ only if there is a watchdog.
    if (has_called_) world_->watchdog()->wait_for_answers(kMaxSecondsOfAnswers);
}

/// A sentence with the path of the snapshot; empty if there is none. The snapshot of a processor is that of
/// the failed request; on a GPU, the exception has freed some blocks.
std::string MemoryAccount::write_failure(const Shortage& found) const {
    if (!memory_) return "";
    const std::lock_guard lock(mutex_);
    is_written_ = true;  // in place of an answer's file
    try {
        auto snapshot = memory_->failed_snapshot();
        if (!snapshot) snapshot = memory_->snapshot();
        const auto path = write_snapshot(config_, kFailureFolder, *snapshot,
                                         {.rank = rank_,
                                          .requested_bytes = found.requested_bytes,
                                          .held = held_,
                                          .named = named_,
                                          .tensors = tensors_});
        return path.empty() ? "" : fmt::format(". {} lists the largest tensors", path.string());
    } catch (const std::exception&) {  // memory is short
        return "";
    }
}

std::string MemoryAccount::place() const {
    if (under_way_) return " in " + parallel::describe(*under_way_);
    return phase_ ? fmt::format(" in {}", phase_) : "";
}

void MemoryAccount::explain() const {
    const auto found = observe::find_shortage();
    if (!found) throw;
    const bool on_gpu = setup::computes_on_gpu();
    const bool reads_data =
        !under_way_ && phase_ && std::string_view(phase_) == observe::describe(observe::Phase::Data);
    const std::string text = shortage_text(
        config_,
        {.place = place(), .reads_data = reads_data, .planned = planned_, .held = held_, .tensors = tensors_},
        *found, on_gpu);
    throw RunError("{}{}", text, is_beside_the_model(*found, on_gpu) ? "" : write_failure(*found));
}

}  // namespace argosy::plan

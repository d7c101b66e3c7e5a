// Explains an out-of-memory error of a training run. MemoryAccount collects during the run what the message
// (shortage_text.h) says, and each rank writes a memory snapshot: the rank whose memory ran out calls the
// others through the watchdog.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "config/job_config.h"
#include "observe/memory.h"
#include "observe/shortage.h"
#include "parallel/lowering.h"
#include "parallel/parallel_model.h"
#include "plan/large_tensors.h"
#include "plan/memory_snapshot.h"
#include "plan/rank_trace.h"
#include "train/adamw.h"
#include "train/trainer.h"

namespace argosy::plan {

class MemoryAccount : public std::enable_shared_from_this<MemoryAccount> {
  public:
    explicit MemoryAccount(const config::JobConfig& config) : config_(config) {}
    MemoryAccount(const MemoryAccount&) = delete;

    /// Constructs the Trainer. If that fails, records the bytes that the Trainer would have held, because
    /// memory may have run out. Later, another rank whose memory runs out can call this rank, which
    /// then writes its snapshot. REQUIRES: a std::shared_ptr
    /// owns the MemoryAccount.
    train::Trainer make_trainer(const train::TrainerOptions& options, comm::Mesh& mesh,
                                const observe::MemoryMeter& memory);

    /// The large tensors of a step, once the trainer is made.
    std::span<const LargeTensor> tensors() const { return tensors_; }

    /// Names the phase that begins now; messages print the name after "in". If a unit operation is under way,
    /// messages name the operation instead. REQUIRES: `phase` is a string literal.
    void enter_phase(const char* phase) {
        phase_ = phase;
        if (memory_) memory_->enter(phase);
    }

    /// Records what the trainer holds, for later messages and snapshots, and the operation that has failed,
    /// if one has.
    void record(train::Trainer& trainer);

    /// Returns the result of `work`, which trains. Explains its errors as explain() does, from a new record.
    /// If memory has run out, also calls the other ranks, which write their snapshots meanwhile.
    template <class Work>
    auto explain_errors_of(train::Trainer& trainer, const Work& work) {
        try {
            return work();
        } catch (...) {
            record(trainer);
            call_others();
            explain();
        }
    }
    /// If explain_errors_of() has called the other ranks, gives them some seconds for their snapshots: the
    /// job ends when this rank leaves. REQUIRES: the mesh still exists, if make_trainer() was called.
    void wait_for_answers() const;

    /// Throws RunError with the explanation if the GPU or the host ran out of memory, after writing a memory
    /// snapshot; otherwise rethrows the current exception. REQUIRES: the caller is inside a catch block.
    [[noreturn]] void explain() const;

  private:
    void call_others();
    void answer();
    void plan_memory(const train::TrainerOptions& options, const comm::Mesh& mesh);
    std::string place() const;
    std::string write_failure(const observe::Shortage& found) const;

    const config::JobConfig config_;
    comm::Communicator* world_ = nullptr;  // once the trainer's construction begins
    bool has_called_ = false;
    /// Guards the file, held_ and named_, because answer() runs in another thread.
    mutable std::mutex mutex_;
    mutable bool is_written_ = false;
    std::optional<plan::HeldBytes> planned_, held_;
    std::vector<LargeTensor> tensors_;
    const char* phase_ = nullptr;  // null: no phase named yet
    std::optional<parallel::UnitOp> under_way_;
    std::optional<observe::MemoryMeter> memory_;  // once the trainer's construction begins
    int rank_ = 0;
    NamedBlocks named_;
};

}  // namespace argosy::plan

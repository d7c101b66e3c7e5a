// Explains an out-of-memory error of a training run: how many bytes were requested and where, what held the
// rest of the memory, and which settings need less. MemoryAccount collects during the run what the message
// says.
#pragma once

#include <optional>
#include <string>

#include "comm/mesh.h"
#include "config/job_config.h"
#include "parallel/lowering.h"
#include "plan/rank_trace.h"
#include "train/trainer.h"

namespace argosy::plan {

class MemoryAccount {
  public:
    explicit MemoryAccount(const config::JobConfig& config) : config_(config) {}
    MemoryAccount(const MemoryAccount&) = delete;
    /// The configuration with what the run chose for "auto".
    void set_config(const config::JobConfig& config) { config_ = config; }

    /// Constructs the Trainer. If that fails, records the bytes that the Trainer would have held, because
    /// memory may have run out.
    train::Trainer make_trainer(const train::TrainerOptions& options, comm::Mesh& mesh);

    /// Names the phase that begins now; messages print the name after "in". If a unit operation is under way,
    /// messages name the operation instead. REQUIRES: `phase` is a string literal.
    void enter_phase(const char* phase) { phase_ = phase; }

    /// Records what the trainer holds, for later messages, and the operation that has failed, if one has.
    void record(train::Trainer& trainer);

    /// Returns the result of `work`, which trains. Explains its errors as explain() does, from a new record.
    template <class Work>
    auto explain_errors_of(train::Trainer& trainer, const Work& work) {
        try {
            return work();
        } catch (...) {
            record(trainer);
            explain();
        }
    }

    /// Throws RunError with the explanation if the GPU or the host ran out of memory; otherwise rethrows the
    /// current exception. REQUIRES: the caller is inside a catch block.
    [[noreturn]] void explain() const;

  private:
    std::string place() const;

    config::JobConfig config_;
    std::optional<HeldBytes> planned_, held_;
    const char* phase_ = nullptr;  // null: no phase named yet
    std::optional<parallel::UnitOp> under_way_;
};

}  // namespace argosy::plan

// Explains an out-of-memory error: how many bytes were requested, in which phase or operation, what held the
// rest of the memory, and which settings need less. The MemoryAccount collects these facts during the run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "account/large_tensors.h"
#include "account/shortage.h"
#include "comm/mesh.h"
#include "config/job_config.h"
#include "optim/adamw.h"
#include "parallel/lowering.h"
#include "parallel/parallel_model.h"
#include "train/trainer.h"

namespace argosy::account {

// Counts the bytes that a rank holds as long as a run trains, by purpose. Activations are not counted.

struct HeldBytes {
    int64_t weights = 0;    // the weights that the optimizer updates
    int64_t copies = 0;     // copies of the weights in the type of computation, if that type differs
    int64_t gradients = 0;  // of the parameters, and of units before the reduction over the shards
    int64_t moments = 0;    // of the optimizer
    int64_t gathered = 0;   // weights of units that are gathered now
    int64_t total() const { return weights + copies + gradients + moments + gathered; }
};

/// Bytes that this rank holds now.
HeldBytes held_bytes(parallel::ParallelModel& model, const optim::AdamW& optimizer);

/// Bytes that this rank's Trainer will hold once it is constructed. Computed without allocating anything.
HeldBytes planned_bytes(const train::TrainerOptions& options, const comm::Mesh& mesh);

class MemoryAccount {
  public:
    /// REQUIRES: config outlives it.
    explicit MemoryAccount(const config::JobConfig& config) : config_(config) {}
    MemoryAccount(const MemoryAccount&) = delete;

    /// Constructs the Trainer, which may already run out of memory.
    train::Trainer make_trainer(const train::TrainerOptions& options, comm::Mesh& mesh);

    /// Names the phase that begins now; messages print it after "in". A unit operation under way takes
    /// precedence over it. REQUIRES: `what` is a string literal.
    void doing(const char* what) { doing_ = what; }

    /// The destructor records what the trainer holds and which operation is under way. An exception on its
    /// way to explain() destroys the Watch before the trainer.
    class Watch {
      public:
        Watch(MemoryAccount& account, train::Trainer& trainer) : account_(account), trainer_(trainer) {
            account.doing("the start of the run");
        }
        Watch(const Watch&) = delete;
        ~Watch();

      private:
        MemoryAccount& account_;
        train::Trainer& trainer_;
    };
    /// The phase that begins is the start of the run. REQUIRES: the trainer outlives the returned Watch, and
    /// the MemoryAccount outlives both.
    [[nodiscard]] Watch watch(train::Trainer& trainer) { return {*this, trainer}; }

    /// Call inside a catch block. Throws RunError with the explanation if memory on the GPU or the host ran
    /// out; otherwise rethrows the current exception.
    [[noreturn]] void explain() const;

  private:
    void note(train::Trainer& trainer);
    std::string place() const;
    std::string wanted(const Shortage& found) const;

    const config::JobConfig& config_;
    std::optional<HeldBytes> planned_, held_;
    std::vector<LargeTensor> tensors_;
    const char* doing_ = nullptr;  // null: no phase named yet
    std::optional<parallel::UnitOp> under_way_;
};

}  // namespace argosy::account

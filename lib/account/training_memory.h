// Explains an out-of-memory error: how many bytes were requested, in which phase or operation, what held the
// rest of the memory, and which settings need less. The MemoryAccount collects these facts during the run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "account/held_bytes.h"
#include "account/large_tensors.h"
#include "account/shortage.h"
#include "config/job_config.h"
#include "parallel/unit_op.h"
#include "train/trainer.h"

namespace argosy::account {

class MemoryAccount {
  public:
    /// REQUIRES: config outlives it.
    explicit MemoryAccount(const config::JobConfig& config) : config_(config) {}
    MemoryAccount(const MemoryAccount&) = delete;

    /// Call before the Trainer is constructed: its construction may already run out of memory.
    void plan(const train::TrainerOptions& options, const comm::Mesh& mesh) {
        planned_ = planned_bytes(options, mesh);
        tensors_ = large_tensors(options, mesh);
        doing("the making of the model");
    }

    /// Names the phase that begins now; messages print it after "in". A unit operation under way takes
    /// precedence over it. REQUIRES: `what` is a string literal.
    void doing(const char* what) { doing_ = what; }

    /// The destructor records what the trainer holds and which operation is under way. An exception on its
    /// way to explain() destroys the Watch before the trainer.
    class Watch {
      public:
        Watch(MemoryAccount& account, train::Trainer& trainer) : account_(account), trainer_(trainer) {}
        Watch(const Watch&) = delete;
        ~Watch();

      private:
        MemoryAccount& account_;
        train::Trainer& trainer_;
    };
    /// REQUIRES: the trainer outlives the returned Watch, and the MemoryAccount outlives both.
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

// Why there was no memory: how much was asked for and by what, what held the rest, and what to change.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "gpu/shortage.h"
#include "parallel/unit_op.h"
#include "train/held_bytes.h"
#include "train/large_tensors.h"
#include "train/trainer.h"

namespace argosy::train {

class MemoryAccount {
  public:
    /// REQUIRES: config outlives it.
    explicit MemoryAccount(const config::JobConfig& config) : config_(config) {}
    MemoryAccount(const MemoryAccount&) = delete;

    /// Before a Trainer is made, which may be what there is no memory for.
    void plan(const TrainerOptions& options, const mesh::Mesh& mesh) {
        planned_ = planned_bytes(options, mesh);
        tensors_ = large_tensors(options, mesh);
        doing("the making of the model");
    }

    /// What comes next, as it stands after "in"; what a step is within is known without. Static text.
    void doing(const char* what) { doing_ = what; }

    /// Notes what a trainer holds, and does, when it ends: an exception on its way to explain() ends it
    /// before the trainer itself.
    class Watch {
      public:
        Watch(MemoryAccount& account, Trainer& trainer) : account_(account), trainer_(trainer) {}
        Watch(const Watch&) = delete;
        ~Watch();

      private:
        MemoryAccount& account_;
        Trainer& trainer_;
    };
    /// REQUIRES: the trainer outlives what is returned, and this outlives both.
    [[nodiscard]] Watch watch(Trainer& trainer) { return {*this, trainer}; }

    /// Within a handler of any exception: throws RunError where memory was missing, on the GPU or the host,
    /// and otherwise the exception again.
    [[noreturn]] void explain() const;

  private:
    void note(Trainer& trainer);
    std::string place() const;
    std::string wanted(const gpu::Shortage& found) const;

    const config::JobConfig& config_;
    std::optional<HeldBytes> planned_, held_;
    std::vector<LargeTensor> tensors_;
    const char* doing_ = nullptr;  // null: nothing that is known
    std::optional<parallel::UnitOp> under_way_;
};

}  // namespace argosy::train

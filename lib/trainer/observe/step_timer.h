// Splits a step's time into parts, by this rank's host clock. Every moment of a step belongs to exactly one
// part, so the parts add up to the whole. A step begins where the one before ended, so what comes between two
// steps, as the report of the one, the writing of traces and the agreement to go on, is *other* of the later
// one. A moment is *exposed communication* if the program waits for a group of the mesh, or moves or reduces
// data for the group (Communicator::exposed_seconds). Exposed communication includes waiting for a late rank,
// and is subtracted from the phase in which it happens. Any other moment belongs to the innermost open phase,
// or to *other* if no phase is open. Training pauses for validation and evaluation: their communication
// belongs to them, so that exposed communication is training's alone. Only the thread that waits on the
// communicators uses a StepTimer.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "comm/mesh.h"
#include "observe/gpu_kinds.h"

namespace argosy::observe {

enum class Phase { Data, Compute, Optimizer, Checkpoint, Validation, Evaluation };
inline constexpr int kNumPhases = 6;

/// Returns the words for a phase in messages, to follow "in": "the optimizer's update".
const char* describe(Phase phase);

/// total = data + compute + optimizer + checkpoint + validation + evaluation + other + all of exposed.
struct StepTimes {
    double total_ms = 0;
    double data_ms = 0;
    double compute_ms = 0;
    double optimizer_ms = 0;
    double checkpoint_ms = 0;  // the time for which a save stopped training
    double validation_ms = 0;
    double evaluation_ms = 0;
    double other_ms = 0;
    /// The parts of compute_ms, by kind. On a GPU: the times of its current stream, and the rest of
    /// compute_ms as Other.
    std::optional<std::array<double, kNumComputeKinds>> compute_kinds_ms = {};
    /// Keyed by the name of a group's mesh axes ("tp", "dp_shard"), "world", or "ep" for the group over which
    /// rows go to their experts. Without the communication of validation and evaluation, which is in the times
    /// of these.
    std::map<std::string, double> exposed_ms;
    double all_exposed_ms() const;
    StepTimes& operator+=(const StepTimes& more);
};

/// A part of a step besides the exposed communication of training.
struct StepPart {
    const char* name;   // in metrics.jsonl
    const char* words;  // in sentences: "the optimizer takes 3 ms more"
    double StepTimes::*ms;
};
/// The parts by Phase, then *other*.
inline constexpr std::array<StepPart, kNumPhases + 1> kStepParts = {{
    {"data", "data", &StepTimes::data_ms},
    {"compute", "compute", &StepTimes::compute_ms},
    {"optimizer", "the optimizer", &StepTimes::optimizer_ms},
    {"checkpoint", "saving", &StepTimes::checkpoint_ms},
    {"validation", "validation", &StepTimes::validation_ms},
    {"evaluation", "evaluation", &StepTimes::evaluation_ms},
    {"other", "other", &StepTimes::other_ms},
}};

class StepTimer {
  public:
    /// REQUIRES: `mesh` outlives the timer. `clock` returns seconds and never goes back.
    explicit StepTimer(const comm::Mesh& mesh, std::function<double()> clock = seconds_now);

    /// A phase, which lasts as long as this object. Phases nest: the inner phase's time is not part of the
    /// outer phase's.
    class [[nodiscard]] PhaseScope {
      public:
        ~PhaseScope();
        PhaseScope(const PhaseScope&) = delete;
        PhaseScope& operator=(const PhaseScope&) = delete;

      private:
        friend class StepTimer;
        PhaseScope(StepTimer& timer, Phase phase);
        StepTimer& timer_;
        std::optional<Phase> outer_;
    };

    /// REQUIRES: no step is open.
    void start_step();
    /// REQUIRES: a step is open.
    PhaseScope phase(Phase phase);
    /// Runs `work` in a phase and returns its result.
    template <class Work>
    auto in(Phase of_work, Work work) {
        const PhaseScope scope = phase(of_work);
        return work();
    }
    /// Moves `seconds` from one phase to another. Call this if some time in phase `from` was a wait for phase
    /// `to`. REQUIRES: a step is open.
    void move(Phase from, Phase to, double seconds);
    /// The phase Compute does work of this kind from now until the next call or the phase's end. Without any
    /// call or launch in a step, its times have no kinds. Does nothing in another phase.
    void compute(ComputeKind kind);
    /// On a GPU: a graph was launched, during whose recording compute() was called.
    void launched(uint64_t graph);
    /// REQUIRES: a step is open, and no phase is open.
    StepTimes finish_step();

  private:
    struct Reading {
        double seconds = 0;                             // by the clock
        std::map<std::string, double> exposed_seconds;  // by the name of the groups, since they were made
    };
    Reading read() const;
    void add_time_since_last();
    void switch_to(std::optional<Phase> next);

    const comm::Mesh& mesh_;
    std::function<double()> clock_;
    bool in_step_ = false, has_steps_ = false;
    std::optional<Phase> open_;
    double start_seconds_ = 0;                       // by the clock
    Reading last_;                                   // at the last change of phase or kind
    std::map<std::string, double> exposed_seconds_;  // as StepTimes::exposed_ms
    std::optional<GpuKinds> gpu_kinds_;
    std::array<double, kStepParts.size()> part_seconds_{};  // as kStepParts
    ComputeKind kind_ = ComputeKind::Other;
    std::array<double, kNumComputeKinds> kind_seconds_{};
    bool has_kinds_ = false;  // in this step
};

}  // namespace argosy::observe

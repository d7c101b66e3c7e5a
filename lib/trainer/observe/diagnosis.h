// Says in words why a run is slow: rules that turn the split of the steps' time into sentences with a cause
// and a remedy, at the end of a run and when its throughput falls. Shares are shares of rank 0's time.
// Says also what is wrong with its experts (expert_diagnosis.h).
// Exposed communication includes waiting for slow ranks, which have sentences of their own (rank_times.h).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "layout/mesh_shape.h"
#include "observe/expert_diagnosis.h"
#include "observe/metrics.h"
#include "observe/rank_times.h"
#include "observe/step_timer.h"

namespace argosy::observe {

/// The pipeline of a run. A bubble is the share of a step in which the ranks wait for each other, if all
/// stages take equally long and transfers take no time.
struct PipelineFacts {
    std::string schedule;
    int64_t num_microbatches = 1;
    double bubble = 0;
    std::optional<double> bubble_of_twice = {};  // with twice as many microbatches
    std::string better_schedule = {};            // the one with the smallest bubble; empty: this one
    double better_bubble = 0;
};

/// The facts about a run that the rules need.
struct RunFacts {
    layout::MeshShape mesh;
    RankHosts hosts = {};
    bool reshards = true;            // gathered parameters are freed after forward and gathered again
    bool overlaps_products = false;  // async tensor parallelism
    std::string rotate_method = {};  // of context parallelism
    std::optional<PipelineFacts> pipeline = {};
    bool saves_async = true;
    int64_t checkpoint_interval = 0, validation_freq = 0, evaluation_freq = 0;  // in steps
    std::vector<std::string> slow_settings = {};  // sentences about environment variables
    ExpertFacts experts = {};                     // of a model with experts
};

/// The steps to explain.
struct Observed {
    StepTimes times = {};  // sums
    int64_t num_steps = 0;
    int64_t tokens = 0;
    int64_t num_allocator_retries = 0;
    std::vector<std::string> slow_ranks = {};  // sentences

    Observed& operator+=(const Observed& more);
};

struct Cause {
    const char* rule = "";  // its name in the table of rules
    double share = 0;       // of the time; 1 for faults that have no share
    std::string text = {};  // cause and remedy
};

/// Applies all rules. The largest share comes first. Empty if no part of the time stands out.
std::vector<Cause> diagnose(const Observed& observed, const RunFacts& facts);

/// Milliseconds of a step by part: "data", "compute", "exposed tp", ...
using StepParts = std::map<std::string, double>;
StepParts parts_of(const StepTimes& sums, int64_t num_steps = 1);

/// The parts that grew most: "compute takes 12.3 ms (18 %) more, ...". Empty if none grew.
std::string growth_text(const StepParts& before, const StepParts& now);

/// Watches a run, and explains it on rank 0. The first steps do not count, because they include start-up.
class Diagnosis {
  public:
    /// COLLECTIVE over `control`, as RankTimes. The hosts in `facts` are filled in here.
    Diagnosis(RunFacts facts, const RankTimesOptions& ranks, const MetricsOptions& metrics,
              comm::Communicator& control);

    /// Takes the next step. COLLECTIVE if a window ends with this step. Logs a warning when the throughput of
    /// a window falls below 0.8 of what nine of ten windows before (of fewer than ten: all) reached, once
    /// until it has risen again or falls as much again. Saves, validations and evaluations do not count as
    /// falls. Logs a warning of each fault of the experts when it begins.
    void add(const StepMetrics& step);

    /// Logs the causes that hold for the run, if it had enough steps, and what is wrong with its experts.
    void end();

  private:
    struct Window {
        double speed = 0;        // tokens per second
        Observed observed = {};  // without saves, validations and evaluations
    };
    void end_window(int64_t step);
    std::string fall_text(int64_t step, Window now, const Window& usual) const;

    RunFacts facts_;
    RankTimes ranks_;
    ExpertDiagnosis experts_{facts_.experts};
    bool explains_;  // on rank 0
    Observed run_;   // without the window
    Observed window_;
    int64_t num_retries_ = 0;
    std::deque<Window> windows_;       // the newest ones
    std::optional<double> fallen_to_;  // the speed of the last warning, until it has risen again
};

}  // namespace argosy::observe

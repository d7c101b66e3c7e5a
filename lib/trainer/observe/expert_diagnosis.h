// Says in words what is wrong with the experts of a run: rules over windows of steps, each with the layer
// where it is worst and a remedy. configs/EXPERTS.md has the rules with their thresholds, and the reasons.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/balancing.h"

namespace argosy::observe {

/// The facts about a run's experts that the rules need.
struct ExpertFacts {
    int64_t top_k = 1;             // experts of a token
    int num_parts = 1;             // ranks that divide the experts
    double planned_imbalance = 1;  // tokens at the fullest of them, over an equal share
    double bias_update_rate = 0, sequence_loss = 0, step_loss = 0, z_loss = 0;
};

/// The steps to explain. The lists have an entry for each layer with experts.
struct ExpertWindow {
    int64_t first_step = 0, last_step = 0;
    std::vector<int64_t> layers = {};
    std::vector<std::vector<int64_t>> counts = {};  // sums over the steps
    std::vector<double> part_load = {};  // largest in a step: tokens of the fullest rank, over an equal share
    std::vector<double> entropy = {};    // mean over the steps
    std::vector<double> bias_range = {};  // after the last step; empty: no bias

    int64_t num_steps() const { return last_step - first_step + 1; }
    /// REQUIRES: `figures` are those of the step after last_step, or the window is new.
    void add(int64_t step, const model::ExpertFigures& figures, int num_parts);
};

struct ExpertFault {
    const char* rule = "";  // its name in the table of rules
    std::string text = {};
};

/// Applies all rules. `before`: the window before this one, if there is one.
std::vector<ExpertFault> diagnose(const ExpertWindow& window, const std::optional<ExpertWindow>& before,
                                  const ExpertFacts& facts);

class ExpertDiagnosis {
  public:
    explicit ExpertDiagnosis(const ExpertFacts& facts) : facts_(facts) {}

    /// Takes the next step, and logs a warning of each fault of the window that ends with it, if no window of
    /// the last 1000 steps had it. Steps in which experts take turns do not count, nor do the first steps of
    /// a run.
    void add(int64_t step, const model::ExpertFigures& figures);

    /// Logs the faults of the newest window.
    void end() const;

  private:
    ExpertFacts facts_;
    ExpertWindow window_ = {};  // not yet whole
    std::optional<ExpertWindow> newest_ = {};
    std::vector<ExpertFault> faults_ = {};           // of newest_
    std::map<std::string, int64_t> last_seen_ = {};  // by rule: the last step of the last window with it
};

}  // namespace argosy::observe

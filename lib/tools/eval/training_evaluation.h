// The tasks of [evaluation], scored during training on the training mesh with the weights of the moment. The
// forward pass of training runs without gradients, so training does not change.
#pragma once

#include <optional>
#include <vector>

#include "comm/mesh.h"
#include "config/job_config.h"
#include "eval/mesh_scorer.h"
#include "eval/requests.h"
#include "model/model_spec.h"
#include "observe/metrics.h"
#include "train/run_limits.h"
#include "train/trainer.h"

namespace argosy::eval {

/// COLLECTIVE: reads the tasks of evaluation.tasks and the tokenizer. A window has at most training.seq_len
/// inputs, for which the model is built. Logs that [evaluation] has no effect if it is set without tasks.
/// Throws UserError as read_task(), make_work() and require_same_tasks() do, and for texts
/// without a tokenizer.
std::vector<Work> read_tasks(const config::JobConfig& config, const model::ModelSpec& spec,
                             comm::Communicator& control);

class TrainingEvaluation {
  public:
    /// COLLECTIVE unless there are no tasks. REQUIRES: trainer and mesh outlive this object; `options` are
    /// those of the trainer.
    TrainingEvaluation(std::vector<Work> tasks, const train::TrainerOptions& options, train::Trainer& trainer,
                       comm::Mesh& mesh);

    /// COLLECTIVE over the world: the same metrics on all ranks. A task in which the log-likelihood of a
    /// record is not finite has no metrics; the log says so. A signal to a rank ends the evaluation, which
    /// then has no metrics; `stop` finds it.
    std::vector<observe::TaskMetrics> run(train::StopAgreement& stop);

  private:
    std::vector<Work> tasks_;
    bool warns_;                        // on rank 0, because all ranks have the same results
    std::optional<MeshScorer> scorer_;  // none without tasks
};

}  // namespace argosy::eval

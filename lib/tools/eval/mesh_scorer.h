// Scores windows with a model on a mesh, by the forward pass of training: the same operations, without
// gradients.
//
// Windows are packed into sequences as documents. The microbatches are dealt to the data-parallel ranks in
// turn. The ranks run the same number of passes of as many microbatches as there are pipeline ranks; empty
// microbatches fill the last pass. Each rank adds up the scores of the tokens whose logits it has, and one
// sum over the world gives all scores to all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "comm/mesh.h"
#include "eval/microbatches.h"
#include "eval/requests.h"
#include "eval/score.h"
#include "eval/windows.h"
#include "parallel/executor.h"
#include "parallel/parallel_model.h"
#include "train/trainer.h"

namespace argosy::eval {

/// COLLECTIVE: throws UserError on all ranks unless all of them have the same tasks and requests. Ranks that
/// score different windows would wait for each other.
void require_same_tasks(comm::Communicator& control, std::span<const Work> tasks);

class MeshScorer {
  public:
    /// COLLECTIVE. `options` are those of the model: their seq_len and microbatch_size are the shape of a
    /// microbatch. REQUIRES: model and mesh outlive this object.
    MeshScorer(parallel::ParallelModel& model, const train::TrainerOptions& options, comm::Mesh& mesh);
    MeshScorer(const MeshScorer&) = delete;

    /// COLLECTIVE over the world: as score_windows(), the same on all ranks. Calls `progress`, which may be
    /// empty, after each pass on each rank with the finished share. REQUIRES: all ranks have the same
    /// arguments, and no window has more than options.model.seq_len inputs.
    std::vector<RecordScore> score(std::span<const Tokens> records, const std::vector<Window>& windows,
                                   const std::function<void(double share)>& progress = {});

  private:
    Microbatch microbatch(int64_t number) const;
    void run_pass(int64_t first_microbatch);

    comm::Mesh& mesh_;
    train::TrainerOptions options_;
    parallel::Executor executor_;

    // State of the score() that runs.
    std::span<const Tokens> records_;
    std::vector<Sequence> sequences_;       // options_.model.microbatch_size for each microbatch
    std::vector<Microbatch> microbatches_;  // of the pass that runs
    std::optional<ScoreSums> sums_;         // of this rank
};

}  // namespace argosy::eval

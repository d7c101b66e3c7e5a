// The model of `eval` on a mesh: each rank holds its share of the weights once, in the type of the
// computation, and no gradients. The model scores windows by the forward pass of training (mesh_scorer.h) and
// generates texts with eval::ResidentModel.
//
// Generating: the data-parallel ranks divide the texts. The ranks of the tensor and pipeline axes generate
// each text together: a stage passes its rows on to the next one, and all get the logits of the last one.
// Ranks that shard weights gather each unit's weights in each step of the model.
//
// The ranks that hold one copy of the weights together are a group. They must run the same number of steps,
// although their texts end after different numbers of tokens:
// 1. Before each step, the group agrees whether any of its ranks still generates. If one does, all of them
//    take the step; a rank without a text appends no tokens.
// 2. Every few seconds this agreement also includes an agreement of all ranks, with all other groups. There,
//    a signal to one rank ends all of them. Groups with shorter texts take part, too, so that none of their
//    ranks waits for a group with longer texts until the time limit of a wait.
// 3. A rank that has finished its texts goes on with 1 until its group has finished, and then with the
//    agreements of all ranks until all groups have finished.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/environment.h"
#include "eval/generation_tasks.h"
#include "eval/resident_model.h"
#include "parallel/parallel_model.h"
#include "scoring/mesh_scorer.h"
#include "scoring/scoring_model.h"
#include "setup/rank_context.h"
#include "train/run_limits.h"
#include "train/trainer.h"

namespace argosy::scoring {

class MeshModel : public ScoringModel {
  public:
    /// COLLECTIVE. Loads the weights of `source`. Throws UserError if the ranks do not fit the mesh or the
    /// model does not, and what setup::RankContext, require_same_tasks and resume::load_weights throw.
    MeshModel(const mpi::Comm& ranks, const Environment& environment, const interop::ModelSource& source,
              const ScoringOptions& options, std::span<const eval::Work> tasks);
    MeshModel(const MeshModel&) = delete;

    std::vector<eval::RecordScore> score(std::span<const eval::Tokens> records,
                                         const std::vector<eval::Window>& windows,
                                         const Progress& progress) override;
    std::vector<eval::GeneratedText> generate(const tokenizer::Tokenizer& tokenizer,
                                              std::span<const eval::Tokens> contexts,
                                              const eval::GenerateOptions& options, int64_t max_tokens,
                                              const Progress& progress) override;
    int64_t generate_one(const tokenizer::Tokenizer& tokenizer, const tokenizer::Ids& prompt,
                         const eval::GenerateOptions& options, const TakeText& take) override;
    std::string device_name() const override { return context_.device.str(); }
    const layout::MeshShape& mesh() const { return context_.mesh.shape(); }

  private:
    bool on_gpu() const { return !context_.device.is_cpu(); }
    void log_peak() const;
    std::unique_ptr<eval::ResidentModel> resident(int64_t max_tokens, int num_sequences);
    void end_if_stopped();
    bool any_rank_still_generates(bool own);
    bool any_group_is_unfinished(bool own);
    void take_steps_until_all_are_done(eval::ResidentModel& model);

    const ScoringOptions scoring_options_;
    config::JobConfig config_;
    setup::RankContext context_;
    train::StopAgreement stop_;
    train::TrainerOptions options_;
    const parallel::ModelPlacement placement_;
    parallel::ParallelModel model_;
    MeshScorer scorer_;
    double last_agreement_seconds_ = 0;  // of all ranks
};

}  // namespace argosy::scoring

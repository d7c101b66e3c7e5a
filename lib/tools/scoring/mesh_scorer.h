// Scores windows with a model on a mesh, by the forward pass of training: the same operations, without
// gradients.
//
// On processors a microbatch is a packed batch (eval/windows.h): what its windows share is computed once. On
// GPUs and with a context axis, windows are packed into sequences as documents. The microbatches are dealt to
// the data-parallel ranks in turn. The ranks run the same number of passes of as many microbatches as there
// are pipeline ranks; empty microbatches fill the last pass. Each rank adds up the scores of the tokens whose
// logits it has, and one sum over the world gives all scores to all ranks. The head computes logits only for
// predictions that count.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "eval/generate.h"
#include "eval/kept_attention.h"
#include "eval/requests.h"
#include "eval/score.h"
#include "eval/windows.h"
#include "parallel/executor.h"
#include "parallel/parallel_model.h"
#include "tokenizer/tokenizer.h"
#include "train/trainer.h"

namespace argosy::scoring {

/// COLLECTIVE: throws UserError on all ranks unless all of them have the same tasks and requests. Ranks that
/// score different windows would wait for each other.
void require_same_tasks(comm::Communicator& control, std::span<const eval::Work> tasks);

/// COLLECTIVE: the same for one text that the ranks continue together.
void require_same_text(comm::Communicator& control, const tokenizer::Tokenizer& tokenizer,
                       const tokenizer::Ids& prompt, const eval::GenerateOptions& options);

class MeshScorer {
  public:
    /// COLLECTIVE. `options` are those of the model: their seq_len and microbatch_size are the shape of a
    /// microbatch, and the maximum number of tokens in a packed one. `max_windows`: of a packed batch; 0: any
    /// number. REQUIRES: model and mesh outlive this object.
    MeshScorer(parallel::ParallelModel& model, const train::TrainerOptions& options, comm::Mesh& mesh,
               int64_t max_windows = 0);
    MeshScorer(const MeshScorer&) = delete;

    /// COLLECTIVE over the world: as eval::score_windows(), the same on all ranks. Calls `progress`, which
    /// may be empty, after each pass on each rank with the finished share. REQUIRES: all ranks have the same
    /// arguments, and no window has more than options.model.seq_len inputs.
    std::vector<eval::RecordScore> score(std::span<const eval::Tokens> records,
                                         const std::vector<eval::Window>& windows,
                                         const std::function<void(double share)>& progress = {});

  private:
    /// The head's results for the tokens of a microbatch that count.
    struct Found {
        at::Tensor
            values;  // [2, tokens], on the device: losses, and whether the target is the likeliest token
        at::Tensor records;  // [tokens], on the host
    };
    struct Microbatch {
        model::Batch batch;
        at::Tensor records;  // [tokens that count], on the host
        std::unique_ptr<eval::PackedAttention> attention = nullptr;
    };
    int64_t microbatches_per_pass() const;
    int64_t num_microbatches() const;
    void pack(const std::vector<eval::Window>& windows);
    Microbatch make_microbatch(int64_t number) const;
    Microbatch packed_microbatch(int64_t number) const;
    Microbatch microbatch_of_sequences(int64_t number) const;
    void run_pass(int64_t first_microbatch);
    void take(int microbatch, const ops::SoftmaxSums& sums);
    void add_found();
    std::vector<eval::RecordScore> sum_over_ranks();

    comm::Mesh& mesh_;
    train::TrainerOptions options_;
    const int64_t max_windows_;
    /// Attention to a beginning that windows share is a call for each window, which would be slow on a GPU.
    const bool shares_beginnings_;
    parallel::Executor executor_;

    // State of the score() that runs.
    std::span<const eval::Tokens> records_;
    std::vector<eval::WindowBatch> packed_;  // one for each microbatch; or:
    std::vector<eval::Sequence> sequences_;  // options_.model.microbatch_size for each microbatch
    std::vector<Microbatch> microbatches_;   // of the pass that runs
    std::vector<Found> found_;               // not yet in sums_
    int64_t num_found_ = 0;                  // tokens in found_
    at::Tensor sums_;  // [records, 2] in fp64 on the host: log-likelihood, number of likeliest
};

}  // namespace argosy::scoring

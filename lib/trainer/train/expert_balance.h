// Balances the experts of a model over the steps of a run (model/balancing.h): gives a step's passes what
// they need for the losses, adds up what they count over all ranks, and after each update that is applied
//   - moves the bias of each expert by the rate towards the mean load: rate * sign(mean count - count);
//   - keeps the step's loads for the step loss.
// All ranks have the biases and loads of all layers and compute them from the same counts.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "comm/mesh.h"
#include "model/balancing.h"
#include "model/layer.h"
#include "parallel/parallel_model.h"

namespace argosy::train {

/// 0: off.
struct BalanceOptions {
    double bias_update_rate = 0;
    double sequence_loss = 0, step_loss = 0, z_loss = 0;  // coefficients
    bool force_balance = false;
};

class ExpertBalance {
  public:
    /// COLLECTIVE: makes the group over which a pass communicates, with its connections between GPUs. Called
    /// before the model takes memory.
    static void open_groups(const BalanceOptions& options, comm::Mesh& mesh);

    /// REQUIRES: model and mesh outlive this object; the model has experts.
    ExpertBalance(const BalanceOptions& options, parallel::ParallelModel& model, comm::Mesh& mesh);
    ExpertBalance(const ExpertBalance&) = delete;  // batches refer to it

    /// Forgets the counts of the step before, and makes each microbatch of the next step count. REQUIRES: all
    /// data-parallel ranks have equally many sequences.
    void start_step(std::span<model::Batch> microbatches);
    /// What this rank has counted in the step; the sum over all ranks is that of the job.
    const at::Tensor& sums() const { return balancing_.sums; }

    /// `sums` of the job, on the host, the same on all ranks.
    void apply(const at::Tensor& sums);
    model::ExpertFigures figures(const at::Tensor& sums) const;

    /// f of the step loss, [layers, experts]; undefined without that loss. Saved with the run.
    const at::Tensor& loads() const { return balancing_.loads; }

  private:
    at::Tensor counts(const at::Tensor& sums) const { return sums.narrow(1, 0, router_.num_experts); }

    const BalanceOptions options_;
    const ops::Router router_;
    parallel::ParallelModel& model_;
    const int data_degree_, context_degree_;
    int64_t num_tokens_ = 0;       // of the step, in the job
    std::vector<int64_t> layers_;  // that have experts
    model::Balancing balancing_;
};

}  // namespace argosy::train

// Builds a model on a mesh, and the Step that trains it, from a run's options. The executable and the tests
// use the Trainer. The Trainer owns the model and the Step.
//
// On a mesh of recorded ranks (comm/recording.h), whose device is meta, the Trainer is dry: no tensor has
// data, and a step of any rank of any mesh shows its operations and its memory without computing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "model/model_spec.h"
#include "parallel/executor.h"
#include "parallel/lowering.h"
#include "parallel/parallel_model.h"
#include "parallel/placement.h"
#include "train/step.h"

namespace argosy::train {

struct TrainerOptions {
    model::ModelSpec spec;
    parallel::ModelOptions model = {};
    std::vector<int> stage_layers = {};  // blocks of each pipeline stage; empty: one stage has all
    std::string schedule = "1F1B";
    parallel::RankActions own_schedule = {};  // takes the place of `schedule` unless empty
    std::string own_schedule_path = {};       // for messages
    parallel::Reshard reshard = parallel::Reshard::EveryPass;
    model::RecomputeMode recompute = model::RecomputeMode::None;
    int64_t num_microbatches = 1;
    parallel::ExecutorOptions executor = {};
    StepOptions step = {};  // model.seed takes the place of step.adamw.seed
};

/// The model's units and their pipeline stages. Throws UserError if the model does not fit the mesh.
parallel::ModelPlacement place_parameters(const TrainerOptions& options, const layout::MeshShape& mesh);

/// The program of this rank for a forward pass over `options.num_microbatches` microbatches, without backward
/// passes. Groups of as many microbatches as pipeline ranks go through the stages of a rank, one stage after
/// the other.
parallel::Program forward_program(const TrainerOptions& options, const comm::Mesh& mesh);

class Trainer {
  public:
    /// COLLECTIVE. Throws UserError if the model does not fit the mesh, or if the schedule does not fit the
    /// step or deadlocks. REQUIRES: mesh outlives this object.
    Trainer(const TrainerOptions& options, comm::Mesh& mesh);
    Trainer(const Trainer&) = delete;

    parallel::ParallelModel& model() { return model_; }
    Step& step() { return step_; }
    uint64_t seed() const { return seed_; }

  private:
    struct Parts;
    Trainer(const TrainerOptions& options, comm::Mesh& mesh, const Parts& parts);

    uint64_t seed_;
    parallel::ParallelModel model_;
    Step step_;
};

}  // namespace argosy::train

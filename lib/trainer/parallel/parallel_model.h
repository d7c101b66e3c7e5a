// This rank's part of the model: for each of its pipeline stages the layers, the head on the last stage, and
// their parameters in units; and the work on its gradients around a step's program. ParallelModel owns the
// layers and the parameters. The layers communicate through a TensorAxis and a ContextAxis.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/mesh.h"
#include "model/block.h"
#include "model/head.h"
#include "model/layer.h"
#include "model/tensor_axis.h"
#include "parallel/context_parallel.h"
#include "parallel/placement.h"
#include "parallel/product_casts.h"
#include "parallel/sharded_unit.h"
#include "parallel/tensor_parallel.h"
#include "parallel/watched_attention.h"

namespace argosy::parallel {

struct Stage {
    Stage() = default;
    Stage(Stage&&) = default;  // and no copy: the units, which a move leaves in place, refer to themselves

    int number = 0;
    std::vector<std::unique_ptr<model::Layer>> layers;
    std::vector<model::LayerSpec> specs;  // of each unit: what differs between layers
    std::optional<model::Head> head;
    std::deque<ShardedUnit> units;  // one for each layer, then the head's; the units cannot be moved

    bool is_head(int unit) const { return std::cmp_equal(unit, layers.size()); }
};

struct ModelOptions {
    Precision precision = {};
    ProductCasts casts = {};
    TensorOptions tensor = {};
    ContextOptions context = {};
    int64_t seq_len = 0;
    int64_t microbatch_size = 1;                 // sequences
    uint64_t seed = 0;                           // of the initial weights
    std::optional<double> score_threshold = {};  // of ParallelModel::largest_scores(); none: not watched
    double planned_imbalance = 1;                // ExpertParallelAxis
};

/// Owns everything that this rank computes with. The object cannot be moved, because its layers refer to it.
class ParallelModel {
  public:
    /// COLLECTIVE: creates this rank's slabs of the parameters that `placement` describes, and builds the
    /// layers that compute with them.
    ParallelModel(const model::ModelSpec& spec, const ModelPlacement& placement, comm::Mesh& mesh,
                  const ModelOptions& options, ModelUse use = ModelUse::Training);
    ParallelModel(const ParallelModel&) = delete;

    const model::ModelSpec& spec() const { return spec_; }
    std::vector<Stage>& stages() { return stages_; }
    const StageMap& stage_map() const { return stage_map_; }
    /// In the order of the units. A tied table whose stages are on this rank occurs once, in the embedding.
    const std::vector<std::unique_ptr<ShardedParameter>>& parameters() const { return parameters_; }
    /// The unit of each entry of parameters(), as an index into model::unit_names. On the rank that owns a
    /// tied table (layout::owns), the table's unit is the embedding.
    const std::vector<int>& parameter_units() const { return parameter_units_; }
    const Precision& precision() const { return precision_; }
    /// Of attention since the last reset_scores(), exact above the threshold (parallel/watched_attention.h):
    /// [layers, heads] of the whole model, -infinity for those of other ranks. Undefined without a threshold.
    const at::Tensor& largest_scores() const { return scores_.largest; }

    /// The biases of all experts in the choice of them, [layers, experts] of the whole model, in the
    /// accumulation type; zero until somebody changes them. Undefined without experts. All ranks have the
    /// same.
    at::Tensor& router_biases() { return router_biases_; }

    /// COLLECTIVE: casts the weights that are kept in float8, with scales of the whole matrices from one
    /// reduction over the ranks. Called after each change of master weights.
    void refresh_float8();

    /// Numbers the roundings of gradients in bf16 from this microbatch of the step on (ops::rounding_number).
    void start_roundings(int64_t update, int64_t microbatch);
    c10::Device device() const { return device_; }  // device of all tensors of this model

  private:
    void add_unit(const ModelPlacement& placement, int unit, comm::Mesh& mesh, const ModelOptions& options,
                  ModelUse use);
    const model::ContextAxis& context_of(int64_t layer, const comm::Mesh& mesh);
    ShardedParameter* find(const std::string& name) const;
    Stage& stage(int number);

    model::ModelSpec spec_;
    StageMap stage_map_;
    Precision precision_;
    ProductCasts casts_;
    comm::Communicator* matrix_parts_ = nullptr;  // the ranks that hold parts of a matrix in float8
    c10::Device device_;
    model::RopeTables rope_;
    ops::FirstRounding first_rounding_;
    std::unique_ptr<model::TensorAxis> axis_;
    std::unique_ptr<model::ContextAxis> context_;
    std::unique_ptr<model::ExpertAxis> experts_;
    ops::ScoreWatch scores_;
    at::Tensor router_biases_;
    std::deque<WatchedAttention> watched_;  // of each layer of this rank, if scores are watched
    std::vector<std::unique_ptr<ShardedParameter>> parameters_;
    std::vector<int> parameter_units_;
    std::vector<Stage> stages_;
};

/// The group for gradients between stages. If ranks have several stages, both activations and gradients go
/// both ways between two ranks, and neither may wait for the other.
comm::Communicator& gradient_group(comm::Mesh& mesh, const StageMap& stages);

// Work on the gradients before and after a step's program (parallel/lowering.h), which makes all sums over
// ranks.

/// Marks all gradients as empty. Called before a step's first microbatch.
void reset_gradients(ParallelModel& model);

/// Forgets the scores. Called there too.
void reset_scores(ParallelModel& model);

/// Returns [units of the whole model] (model::unit_names) in fp64: for each unit, the squared norm of the
/// gradients that this rank owns. The sum over all ranks is the squared norm of the unit's whole gradient.
at::Tensor owned_squared_norms(ParallelModel& model);

}  // namespace argosy::parallel

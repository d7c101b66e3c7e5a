// The state of a run between two steps that checkpoints keep: this rank's slabs of the tensors, and a few
// numbers (FORMAT.md). The Trainer owns the elements; a RunState holds views of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/save_plan.h"
#include "checkpoint/tensor_source.h"
#include "comm/mesh.h"
#include "layout/param_spec.h"
#include "parallel/parallel_model.h"
#include "train/lr_schedule.h"
#include "train/run_limits.h"
#include "train/trainer.h"
#include "train/update_guard.h"

namespace argosy::resume {

/// The numbers that a checkpoint keeps in addition to the tensors. FORMAT.md describes their JSON form.
struct Scalars {
    train::Position position;
    // false: position.samples and position.tokens are unknown, in a checkpoint of another program
    bool knows_samples = true, knows_tokens = true;
    int64_t seq_len = 0;  // tokens of one sample of position.samples
    uint64_t seed = 0;
    std::string data = {};    // data::Loader::fingerprint(); empty: unknown
    int64_t num_updates = 0;  // of the optimizers: all steps except skipped ones
    int64_t lr_schedule = train::LrSchedule::kVersion;
    bool has_loss_scale = false;  // of a run in float16, as older versions had; never written
    train::UpdateGuard::State guard;
    bool operator==(const Scalars&) const = default;
};

std::string to_json(const Scalars& scalars);

/// Throws UserError, which names `place`, if `text` is not a text of to_json().
Scalars parse_scalars(const std::string& text, const std::string& place);

/// A slab of a tensor, and its elements in this rank's memory.
struct HeldSlab : checkpoint::TensorSlab {
    at::Tensor elements;  // contiguous, of the slab's size
    /// What the elements become where a source lacks the tensor; none: it must have it.
    std::optional<double> if_missing = {};
};

/// This rank's slabs of a model's weights: "model/<parameter>", with the type that the weights have in
/// memory, and after them the biases of experts (model::router_biases), whole. For training these are the
/// weights that the optimizer updates.
class HeldWeights {
  public:
    /// REQUIRES: the model outlives this object.
    explicit HeldWeights(parallel::ParallelModel& model);

    const model::ModelSpec& spec() const { return model_.spec(); }
    const std::vector<HeldSlab>& slabs() const { return slabs_; }
    bool has_router_biases() const;  // whether one is not zero

    /// Refreshes the copies of the weights that computation uses. Call after the slabs are filled.
    void changed();

  private:
    parallel::ParallelModel& model_;
    std::vector<HeldSlab> slabs_;
};

class RunState {
  public:
    /// `seq_len` is the number of tokens of a sample, `data` the loader's fingerprint. REQUIRES: the other
    /// arguments outlive this object.
    RunState(train::Trainer& trainer, const comm::Mesh& mesh, train::UpdateGuard& guard, int64_t seq_len,
             std::string data = {});

    int64_t seq_len() const { return seq_len_; }
    const std::string& data() const { return data_; }

    const model::ModelSpec& spec() const { return weights_.spec(); }
    HeldWeights& weights() { return weights_; }
    const HeldWeights& weights() const { return weights_; }
    /// The optimizers' states: "optimizer/<state>/<parameter>"; of the step loss of experts the loads,
    /// "optimizer/load/<bias>".
    const std::vector<HeldSlab>& states() const { return states_; }
    /// How a save cuts the tensors of weights() and states(). A state is cut as its parameter.
    const std::vector<checkpoint::CutTensor>& cut_weights() const { return cut_weights_; }
    const std::vector<checkpoint::CutTensor>& cut_states() const { return cut_states_; }
    const layout::MeshShape& mesh() const { return mesh_.shape(); }
    int writer(const checkpoint::SavePlan& plan) const;  // this rank's number among the plan's writers

    Scalars scalars(const train::Position& position) const;
    void restore_optimizer(const Scalars& scalars);  // number of updates
    void restore_guard(const Scalars& scalars) { guard_.restore(scalars.guard); }

  private:
    train::Trainer& trainer_;
    const comm::Mesh& mesh_;
    train::UpdateGuard& guard_;
    int64_t seq_len_;
    std::string data_;
    HeldWeights weights_;
    std::vector<HeldSlab> states_;
    std::vector<checkpoint::CutTensor> cut_weights_, cut_states_;
};

/// The name of a parameter's weights in a checkpoint.
std::string weight_name(const std::string& parameter);

}  // namespace argosy::resume

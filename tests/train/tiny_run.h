// Tiny models and batches for tests of whole steps, and the tensors of a run gathered from all ranks, by
// which layouts are compared.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "train/trainer.h"

namespace argosy::testing {

/// Models whose sizes few numbers divide: llama3 (untied), qwen2 (tied, biases), qwen3 (tied, QK-norm, free
/// head_dim), mistral (tied, a window; its batches have several documents in a sample), olmo3 (the
/// same with norms after each half, QK-norm over all heads, and no window in every other layer),
/// gemma3.
model::ModelSpec tiny_spec(const std::string& family);

struct Layout {
    std::string name;
    layout::MeshRequest mesh = {};
    std::vector<int> stage_layers = {};
    std::string schedule = "1F1B";
    parallel::Reshard reshard = parallel::Reshard::EveryPass;
    parallel::ContextOptions context = {};
    parallel::RankActions own_schedule = {};  // takes the place of `schedule` unless empty
    parallel::TensorOptions tensor = {};
};

/// The layouts of 1, 2, 4 or 8 ranks that train.layouts runs and record_layouts records.
std::vector<Layout> every_layout(int num_ranks);

enum class TinyData {
    Random,   // random tokens
    Pattern,  // seven of eight tokens follow from the token before
};

struct TinyRunOptions {
    std::string family = "llama3";
    Layout layout = {};
    parallel::Precision precision = {at::kDouble, at::kDouble, at::kDouble};
    model::RecomputeMode recompute = model::RecomputeMode::None;
    int64_t microbatch_size = 1;
    double max_norm = 0.5;  // so small that it acts
    double lr = 1e-3;
    train::AdamWOptions adamw = {};
    std::vector<train::OptimizerChoice> optimizers = {};
    std::vector<train::ParameterGroup> groups = {};
    std::optional<double> qk_clip = {};
    train::BalanceOptions balance = {};
    TinyData data = TinyData::Random;
    uint64_t seed = 11;
    bool unit_grad_norms = false;
    bool graphs = false;
    std::optional<model::ModelSpec> spec = {};  // takes the place of `family`
    int64_t global_batch = 8, seq_len = 12;     // TinyRun::kGlobalBatch, kSeqLen
    /// The lengths of documents that follow each other over all samples, again and again. Empty: documents as
    /// the model's family has them.
    std::vector<int64_t> document_lengths = {};
    parallel::ProductCasts casts = {};
    /// Every two experts have the same row of the router, and so the same score for each token. A row has one
    /// element that is not zero, so that no order of a product's sum makes a difference.
    bool equal_router_rows = false;
};

using NamedTensors = std::map<std::string, at::Tensor>;

/// Trains on a global batch of 8 sequences of 12 tokens, unless the options say otherwise. From none to all
/// of a sample's tokens count.
class TinyRun {
  public:
    static constexpr int64_t kGlobalBatch = 8, kSeqLen = 12;

    /// COLLECTIVE over world.
    TinyRun(const TinyRunOptions& options, comm::Communicator& world);

    /// This rank's microbatches of step `step`.
    train::StepBatch batch(int64_t step) const;

    /// Forward and backward of step `step`: [loss, squared norm].
    train::StepTotals forward_backward(int64_t step);
    train::StepResult update(const train::StepTotals& totals);
    train::StepResult train(int64_t step) { return update(forward_backward(step)); }

    /// COLLECTIVE: whole tensors in fp64, assembled from the slabs of the ranks that own them.
    NamedTensors gradients();
    NamedTensors weights();
    /// The optimizers' states: "<state>/<parameter>"; 0 where a parameter has no such state.
    NamedTensors states();

    train::Trainer& trainer() { return *trainer_; }
    comm::Mesh& mesh() { return mesh_; }

  private:
    /// of(i): this rank's tensor of parameter i.
    NamedTensors assemble(const std::function<at::Tensor(size_t)>& of);

    TinyRunOptions options_;
    comm::Mesh mesh_;
    std::unique_ptr<train::Trainer> trainer_;
};

/// The view of a slab in a whole tensor.
at::Tensor slab_in(at::Tensor whole, const layout::Slab& slab);

/// The largest difference over all tensors, each relative to its largest element in `expected`; names the
/// tensor.
struct Difference {
    double relative = 0;
    std::string name;
};
Difference largest_difference(const NamedTensors& found, const NamedTensors& expected);

}  // namespace argosy::testing

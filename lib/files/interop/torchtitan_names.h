// Maps this program's tensors to those of TorchTitan's checkpoints. TorchTitan renamed tensors several times
// and fused some; a checkpoint's own keys say which names it has. Llama's rows of wq and wk are in Meta's
// order (add_head).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "interop/tensor_map.h"
#include "model/model_spec.h"

namespace argosy::interop {

/// Whether TorchTitan has models of this family whose tensors are known here.
bool has_torchtitan_names(const model::ModelSpec& spec);

/// Whether a checkpoint has a key; that of a layer's tensor has "*" in place of the layer's number.
using HasKey = std::function<bool(const std::string& key)>;

/// The weights, "model/...". A parameter has the first of its names that `has` accepts, newest first; if it
/// accepts none, the newest. Biases of experts are optional. REQUIRES: has_torchtitan_names(spec).
TensorMap torchtitan_weights(const model::ModelSpec& spec, const HasKey& has);

/// The optimizers' states, "optimizer/...", likewise: "optimizer.state.norm.weight.exp_avg". AdamW has them
/// of parameters for which `has` accepts neither its states nor Muon's.
TensorMap torchtitan_states(const model::ModelSpec& spec, const HasKey& has);

/// Names that TorchTitan gives to tensors: since July 2026, and in version 0.2.
enum class TorchTitanNames { Current, V02 };

/// The tensors that TorchTitan itself saves: the weights, and those states, "optimizer/...", that `has`
/// accepts by our names. Since April 2026 the states of wq, wk and wv are one tensor, but not their weights.
/// A tied model's head is left out. REQUIRES: has_torchtitan_names(spec).
TensorMap torchtitan_tensors(const model::ModelSpec& spec, TorchTitanNames names, const HasKey& has);

/// The tensor that TorchTitan saves of a tied model beside the embedding table, with the same elements.
std::string torchtitan_head(TorchTitanNames names);

/// The tensors of a TorchTitan checkpoint under this program's names.
struct TorchTitanTensors {
    std::unique_ptr<checkpoint::TensorSource> tensors;
    bool has_optimizer = false;
    std::string state_faults = {};  // why the optimizer's states are left out, if there are some
    int64_t num_updates = 0;        // of AdamW; 0 without it
};

/// UserError, listing the tensors, if weights are missing, unexpected, or of other shapes than the model's.
/// `other_tensors` are names of tensors whose types TensorInfo does not have. Rotary tables are ignored, and
/// a tied model's head that equals the embedding table. Optimizer states that are not those of all parameters
/// are listed in the result and left out. `checked`: another rank compares the head, and the numbers of updates.
TorchTitanTensors with_torchtitan_names(std::unique_ptr<checkpoint::TensorSource> tensors,
                                        const std::vector<std::string>& other_tensors,
                                        const model::ModelSpec& spec, bool with_states, bool checked);

/// Whether all weights of the model are there, and no others. Compares names, shapes and types alone.
bool are_torchtitan_weights_of(const model::ModelSpec& spec, const checkpoint::TensorSource& tensors);

}  // namespace argosy::interop

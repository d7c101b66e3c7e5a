// Maps this program's parameters to Hugging Face's, for every model family. Names differ, Phi-3 stores some
// matrices as the rows of one, and each expert has tensors of its own. Both sides store the elements of a
// weight in the same order, rotary pairs too (ops/rope.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "checkpoint/tensor_source.h"
#include "interop/tensor_map.h"
#include "model/model_spec.h"

namespace argosy::interop {

/// The prefix of the weights' names in a checkpoint.
inline constexpr const char* kModelPrefix = "model/";

/// The tensors of a checkpoint ("model/...") in files of Hugging Face: "model/layers.0.attention.wq.weight"
/// is "model.layers.0.self_attn.q_proj.weight". Biases of experts are optional, in models that
/// has_router_biases() names.
TensorMap hugging_face_map(const model::ModelSpec& spec);

/// Whether Hugging Face's files of the model have the biases of experts (model::router_biases).
bool has_router_biases(const model::ModelSpec& spec);

/// The tensor of a layer's biases of experts (model::router_biases); null if the source has none.
const checkpoint::TensorInfo* find_router_bias(const checkpoint::TensorSource& source,
                                               const model::ModelSpec& spec, int64_t layer);

/// UserError, listing the tensors, if weights of a checkpoint are missing, unexpected, or of other shapes
/// than the model's.
void check_weights(const checkpoint::TensorSource& checkpoint, const model::ModelSpec& spec);

/// Adds a fault if `head`, a tensor that a tied model stores beside the embedding's `table`, differs from it.
/// Reads nothing if `checked`: another rank compares the two.
void check_tied_head(const checkpoint::TensorSource& source, const checkpoint::TensorInfo& head,
                     const std::string& table, bool checked, TensorFaults& faults);

/// Hugging Face's tensors under a checkpoint's names ("model/..."). UserError, listing the tensors, if some
/// are missing, unexpected, of other shapes, not floating-point, or of other types than the other tensors of
/// their parameter. Rotary tables are ignored, and GLM's layer that predicts further tokens. A tied model's
/// lm_head.weight is ignored if it equals the embedding table, element for element.
std::unique_ptr<checkpoint::TensorSource> with_checkpoint_names(
    std::unique_ptr<checkpoint::TensorSource> tensors, const model::ModelSpec& spec, bool checked = false);

}  // namespace argosy::interop

// Maps this program's parameter names to Hugging Face's, for every model family. Only names differ: both
// sides store the elements of a weight in the same order, rotary pairs too (ops/rope.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "model/model_spec.h"

namespace argosy::interop {

/// The prefix of the weights' names in a checkpoint.
inline constexpr const char* kModelPrefix = "model/";

/// Converts "layers.0.attention.wq.weight" to "model.layers.0.self_attn.q_proj.weight".
std::string hugging_face_name(const std::string& parameter);

/// UserError, listing the tensors, if weights of a checkpoint are missing, unexpected, or of other shapes
/// than the model's.
void check_weights(const checkpoint::TensorSource& checkpoint, const model::ModelSpec& spec);

/// Hugging Face's tensors under a checkpoint's names ("model/..."). UserError, listing the tensors, if some
/// are missing, unexpected, of other shapes, or not floating-point. Rotary tables are ignored. A tied model's
/// lm_head.weight is ignored if it equals the embedding table, element for element.
std::unique_ptr<checkpoint::TensorSource> with_checkpoint_names(
    std::unique_ptr<checkpoint::TensorSource> tensors, const model::ModelSpec& spec);

}  // namespace argosy::interop

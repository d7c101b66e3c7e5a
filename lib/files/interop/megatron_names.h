// Maps this program's weights to those in Megatron's folders of dist_checkpointing (torch_dist). Layers are
// tensors of their own ("decoder.layers.0.mlp.linear_fc2.weight") or, where all layers are alike, rows of one
// stack ("decoder.layers.mlp.linear_fc2.weight", [layers, ...]). Rows of q, k and v come group by group in
// linear_qkv: the query heads of a key's head, that head, the value's. linear_fc1 has the rows of the gate,
// then those of up. The vocabulary is padded. Rotary pairs are the halves of a head, as here.
#pragma once

#include <memory>

#include "checkpoint/tensor_source.h"
#include "model/model_spec.h"

namespace argosy::interop {

/// The tensors of a folder under a checkpoint's names ("model/..."). UserError, listing the tensors, if
/// weights are missing, unexpected, or of other shapes than the model's, or if Megatron has no such layers.
/// States of the optimizer are ignored, and a tied model's output_layer.weight that equals the embedding's
/// table. Rows beyond the model's vocabulary are left out: padding to a multiple of `vocabulary_multiple`,
/// or, if that is NaN, any number of them, with a warning.
std::unique_ptr<checkpoint::TensorSource> with_megatron_names(
    std::unique_ptr<checkpoint::TensorSource> tensors, const model::ModelSpec& spec,
    double vocabulary_multiple, bool checked);

}  // namespace argosy::interop

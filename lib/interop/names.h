// Our parameters' names and Hugging Face's, for every family. Only names differ: weights lie in the same
// order on both sides, rotary pairs too (ops/rope.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "model/model_spec.h"

namespace argosy::interop {

/// The folder of a checkpoint's names that holds the weights.
inline constexpr const char* kModelPrefix = "model/";

/// "layers.0.attention.wq.weight" is "model.layers.0.self_attn.q_proj.weight".
std::string hugging_face_name(const std::string& parameter);

struct ModelTensor {
    std::string parameter;  // our name: a checkpoint's is "model/" and this
    std::string hugging_face;
    std::vector<int64_t> shape;
};

/// The parameters in the order of the forward pass, a tied table once.
std::vector<ModelTensor> model_tensors(const model::ModelSpec& spec);

/// UserError, listing them, where weights of a checkpoint are missing, too many, or of other shapes than the
/// model's.
void check_weights(const checkpoint::TensorSource& checkpoint, const model::ModelSpec& spec);

/// Hugging Face's tensors under a checkpoint's names ("model/..."). UserError, listing them, for tensors that
/// are missing, of other shapes, of no floating type, or none of the model's; rotary tables are passed over,
/// and so is a tied model's lm_head.weight where it equals the table, element for element.
std::unique_ptr<checkpoint::TensorSource> with_our_names(std::unique_ptr<checkpoint::TensorSource> tensors,
                                                         const model::ModelSpec& spec);

}  // namespace argosy::interop

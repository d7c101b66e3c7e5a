// A model's parameters out of a checkpoint, in the type that is computed with.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "h5/element_type.h"
#include "layout/param_spec.h"
#include "model/parameter.h"

namespace argosy::eval {

/// fp32, bf16 or fp16; UserError for anything else.
at::ScalarType compute_type(const std::string& name);

/// LibTorch's type for weights stored so; nothing for whole numbers.
std::optional<at::ScalarType> floating_type(h5::ElementType type);

/// Rows (of the first dim) of a parameter, where and in the type that the options say. REQUIRES: the source
/// holds the model's parameters.
at::Tensor read_rows(const checkpoint::TensorSource& source, const layout::ParamSpec& parameter,
                     const layout::Range& rows, const at::TensorOptions& options);

/// Whole parameters. Likewise. All of them are read before the first goes to a GPU, which computes meanwhile:
/// a copy waits until it has done what it was given.
model::Weights read_weights(const checkpoint::TensorSource& source,
                            const std::vector<model::Parameter>& parameters,
                            const at::TensorOptions& options);

}  // namespace argosy::eval

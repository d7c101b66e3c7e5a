// Reads a model's weights from their checkpoint, in the type and on the device of the computation.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "layout/param_spec.h"
#include "layout/slab.h"
#include "model/parameter.h"

namespace argosy::eval {

/// Returns the type of "fp32", "bf16" or "fp16". Throws UserError for any other name.
at::ScalarType compute_type(const std::string& name);

/// Reads rows (of the first dim) of a parameter, with the device and the type of `options`. REQUIRES: the
/// source holds the model's parameters.
at::Tensor read_rows(const checkpoint::TensorSource& source, const layout::ParamSpec& parameter,
                     const layout::Range& rows, const at::TensorOptions& options);

/// Reads whole parameters. REQUIRES: the source holds them. All are read before the first is copied to a GPU:
/// a copy waits for the GPU's earlier work, so the GPU computes while the host reads.
model::Weights read_weights(const checkpoint::TensorSource& source,
                            const std::vector<model::Parameter>& parameters,
                            const at::TensorOptions& options);

}  // namespace argosy::eval

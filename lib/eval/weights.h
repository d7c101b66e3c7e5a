// Reads a model's parameters from a checkpoint, in the type of the computation.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "h5/dataset.h"
#include "layout/param_spec.h"
#include "model/parameter.h"

namespace argosy::eval {

/// fp32, bf16 or fp16; UserError for anything else.
at::ScalarType compute_type(const std::string& name);

/// LibTorch's type for stored weights; none for integers.
std::optional<at::ScalarType> floating_type(h5::ElementType type);

/// Reads rows (of the first dim) of a parameter, with the device and the type of `options`. REQUIRES: the
/// source holds the model's parameters.
at::Tensor read_rows(const checkpoint::TensorSource& source, const layout::ParamSpec& parameter,
                     const layout::Range& rows, const at::TensorOptions& options);

/// Reads whole parameters; same REQUIRES. All are read before the first is copied to a GPU: a copy waits for
/// the GPU's earlier work, so the GPU computes while the host reads.
model::Weights read_weights(const checkpoint::TensorSource& source,
                            const std::vector<model::Parameter>& parameters,
                            const at::TensorOptions& options);

}  // namespace argosy::eval

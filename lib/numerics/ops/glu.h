// Gated linear units: y = activation(gate) * up, element by element, where gate and up are the halves of one
// matrix: columns [0, n) and [n, 2n).
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/activation.h"

namespace argosy::ops {

// `largest`, unless null, becomes the largest magnitude of the result, as ops::largest_magnitude() finds it,
// if a GPU's kernel finds it without another pass; else it stays undefined.

/// [rows, 2n] -> [rows, n].
at::Tensor glu(const at::Tensor& gate_up, Activation activation, at::Tensor* largest = nullptr);

/// Returns the gradient of gate_up, with the same layout: [rows, 2n].
at::Tensor glu_backward(const at::Tensor& dy, const at::Tensor& gate_up, Activation activation,
                        at::Tensor* largest = nullptr);

// The same for the hidden rows of experts: y is multiplied by the weight of its row, before it is rounded.
// `weights` is [rows], in the accumulation type.

at::Tensor weighted_glu(const at::Tensor& gate_up, const at::Tensor& weights, Activation activation);

struct WeightedGluGradient {
    at::Tensor gate_up, weights;
};
WeightedGluGradient weighted_glu_backward(const at::Tensor& dy, const at::Tensor& gate_up,
                                          const at::Tensor& weights, Activation activation);

}  // namespace argosy::ops

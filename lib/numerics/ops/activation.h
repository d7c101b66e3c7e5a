// The activations of gated linear units, without tensors.
#pragma once

#include "kernels/elementwise.h"

namespace argosy::ops {

using kernels::Activation;

}  // namespace argosy::ops

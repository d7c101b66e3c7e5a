// The stand-in for cuDNN's attention (fake_cudnn.cpp).
#pragma once

namespace argosy::testing {

/// The graphs that ran in this process.
int num_cudnn_calls();

}  // namespace argosy::testing

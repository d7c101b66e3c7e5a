// The graphs of cudnn_frontend.cpp before they are built, for a test that builds them without a GPU.
#pragma once

#include <memory>

#include "gpu/cudnn.h"

namespace cudnn_frontend::graph {
class Graph;
}

namespace argosy::gpu {

/// `capability`: 90 is a GPU of compute capability 9.0.
std::shared_ptr<cudnn_frontend::graph::Graph> describe(const CudnnGraph& graph, int capability);

}  // namespace argosy::gpu

// The GPU's caching allocator where LibTorch's tensors lie in the CPU's memory: it has no memory, and counts
// as LibTorch's does. What is freed stays reserved for blocks of the same size; what fits neither there nor
// beside it is tried again once all of that has been given back, and then refused.
#pragma once

namespace argosy::testing {

/// Of what a GPU has the stand-in's tensors may take ARGOSY_FAKE_GPU_BYTES, or as much as they like. Once in
/// a process, from gpu::use.
void install_fake_allocator();

}  // namespace argosy::testing

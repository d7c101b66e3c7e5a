// Stand-in for LibTorch's GPU allocator when tensors are in host memory: it provides no memory, but counts as
// LibTorch's does. Freed blocks stay reserved for requests of the same size. A request that does not fit is
// tried again after all reserved blocks have been released, and then refused.
#pragma once

namespace argosy::testing {

/// Limits the memory of the fake GPU's tensors to ARGOSY_FAKE_GPU_BYTES, or not at all. gpu::use calls it
/// once in a process.
void install_fake_allocator();

}  // namespace argosy::testing

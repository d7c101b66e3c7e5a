// Only use() (gpu/device.h) calls this.
#pragma once

namespace argosy::gpu {

/// Starts to record failures of LibTorch's allocator for last_allocation_failure(). REQUIRES: the allocator
/// is ready.
void watch_allocations();

}  // namespace argosy::gpu

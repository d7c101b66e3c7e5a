// For use() alone.
#pragma once

namespace argosy::gpu {

/// Notes from now on what LibTorch's allocator cannot get: last_allocation_failure(). REQUIRES: it is ready.
void watch_allocations();

}  // namespace argosy::gpu

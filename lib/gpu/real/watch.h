// For use() alone.
#pragma once

namespace argosy::gpu {

/// Makes LibTorch's allocator ready, and notes from now on what it cannot get: last_allocation_failure().
void watch_allocations();

}  // namespace argosy::gpu

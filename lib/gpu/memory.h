// What LibTorch's caching allocator holds of this thread's GPU.
#pragma once

#include <cstdint>

namespace argosy::gpu {

struct MemoryFigures {
    int64_t allocated_bytes = 0, peak_allocated_bytes = 0;  // by tensors
    int64_t reserved_bytes = 0, peak_reserved_bytes = 0;    // taken from the GPU for them
    int64_t num_retries = 0;  // allocations for which everything unused had to be given back first
};
MemoryFigures memory();

/// New peaks begin at what is held now.
void reset_peak_memory();

}  // namespace argosy::gpu

// Memory for packed operands. Each thread allocates it once, since fresh pages cost more than filling them.
#pragma once

#include <cstdint>

namespace argosy::kernels {

/// Returns at least `size_bytes`, aligned to 64 bytes, with any content. The memory belongs to the calling
/// thread until the thread ends. The thread's next call returns the same memory, or replaces it by a larger
/// one.
void* scratch(int64_t size_bytes);

}  // namespace argosy::kernels

// Temporary memory of the CPU kernels: packed operands and partial sums. Each thread keeps its memory from
// call to call, because the first access to fresh pages costs more than filling the memory.
#pragma once

#include <cstdint>

namespace argosy::kernels {

/// Returns at least `size_bytes`, aligned to 64 bytes, with any content. The memory belongs to the calling
/// thread until the thread ends. The thread's next call returns the same memory, or frees it and returns a
/// larger piece.
void* scratch(int64_t size_bytes);

}  // namespace argosy::kernels

// Memory for what a kernel packs: taken once by each thread, since fresh pages cost more than filling them.
#pragma once

#include <cstdint>

namespace argosy::kernels {

/// At least `size_bytes`, aligned to 64 bytes, with any content. It belongs to the calling thread, which gets
/// the same memory (or larger) at its next call, and is freed when the thread ends.
void* scratch(int64_t size_bytes);

}  // namespace argosy::kernels

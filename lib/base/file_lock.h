// A lock on an open file, by which one process at a time does what the file stands for. It goes with the
// process, however that ends. Its holder takes the file away before it lets it go, so nothing is left behind.
#pragma once

#include <filesystem>

namespace argosy {

/// Gone: the file has no longer that name; who wants the lock opens it anew. NoLocks: the file system has
/// none, and nothing keeps others out.
enum class LockAttempt { Taken, Held, Gone, NoLocks };

/// Does not wait. `file`: open, under `path`. Closing it lets it go.
LockAttempt try_to_lock(int file, const std::filesystem::path& path);

}  // namespace argosy

// Measures the write speed and the free space of a folder.
#pragma once

#include <filesystem>
#include <optional>

#include "preflight/facts.h"

namespace argosy::preflight {

/// Total and free bytes of the folder's file system. None if the system call fails.
std::optional<Space> space_of(const std::filesystem::path& folder);

/// Writes 64 MiB, or as much as about three seconds allow, to a new file, waits until the data are on disk
/// (fsync), and removes the file. If the folder does not exist yet, uses the nearest existing folder above
/// it. Several ranks may call this at the same time.
FolderFacts try_folder(const std::filesystem::path& folder);

}  // namespace argosy::preflight

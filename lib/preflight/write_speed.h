// How fast a folder takes what is written to it, and how much it can take.
#pragma once

#include <filesystem>
#include <optional>

#include "preflight/facts.h"

namespace argosy::preflight {

/// Of its file system; nothing where it cannot be asked.
std::optional<Space> space_of(const std::filesystem::path& folder);

/// Writes 64 MiB, or what about three seconds allow, to a file of its own, has them on disk, and removes it.
/// A folder that is not there yet stands for the nearest one above it that is. Several ranks may do so at the
/// same time.
FolderFacts try_folder(const std::filesystem::path& folder);

}  // namespace argosy::preflight

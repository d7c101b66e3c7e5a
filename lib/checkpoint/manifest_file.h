// Private to this module: writes a step's manifest, with a view of every tensor over the shards.
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/file_writer.h"
#include "checkpoint/table.h"

namespace argosy::checkpoint {

inline constexpr const char* kManifestName = "checkpoint.h5";

/// Writes and fsyncs the file. REQUIRES: `manifest` has a plan, and is complete but for its assets.
void write_manifest(const std::filesystem::path& path, Manifest manifest, const std::vector<Asset>& assets);

}  // namespace argosy::checkpoint

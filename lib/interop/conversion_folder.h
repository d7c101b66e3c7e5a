// Folders that conversions write: Hugging Face's and steps. `conversion.json` in each lists the files that
// the conversion wrote. A later conversion replaces the listed files and keeps a user's own beside them.
#pragma once

#include <filesystem>

#include "checkpoint/partial_folder.h"

namespace argosy::interop {

/// Writes the list of all that lies in `folder`. Durable once it returns.
void list_conversion(const std::filesystem::path& folder);

/// Whether a conversion made what is at `path`: a folder with its list, an empty folder or a full file.
bool is_conversion(const std::filesystem::path& path);

/// UserError where what is at `path` holds files that no conversion wrote, so that a file cannot take its
/// place.
void refuse_other_files(const std::filesystem::path& path);

/// Publishes `made` at `place` (checkpoint/partial_folder.h). The files that a conversion wrote there are
/// replaced; every other file of that folder is in the new one, too. UserError, and nothing is changed, where
/// such a file has the name of one in `made`. REQUIRES: `made` is durable.
void publish_conversion(const std::filesystem::path& made, const std::filesystem::path& place,
                        checkpoint::Replace replace);

}  // namespace argosy::interop

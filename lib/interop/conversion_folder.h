// Folders that conversions write: Hugging Face's and steps. `conversion.json` in each folder lists the files
// that the conversion wrote. A later conversion replaces the listed files and keeps all others, the user's
// own. Also checks whether a conversion may write to a path.
#pragma once

#include <cstdint>
#include <filesystem>

#include "checkpoint/partial_folder.h"
#include "interop/model_source.h"

namespace argosy::interop {

/// Writes the list of all files in `folder`. The list is durable when this returns.
void list_conversion(const std::filesystem::path& folder);

/// Whether a conversion made the contents of `path`: a folder with a list, an empty folder or a full file.
bool is_conversion(const std::filesystem::path& path);

/// UserError if the folder at `path` holds files that no conversion wrote, so that a file cannot replace it.
void refuse_other_files(const std::filesystem::path& path);

/// Publishes `made` at `place` (checkpoint/partial_folder.h). Files there that a conversion wrote are
/// replaced; every other file of the old folder is also in the new one. UserError, and nothing changes, if
/// one of these has the name of a file in `made`. REQUIRES: `made` is durable.
void publish_conversion(const std::filesystem::path& made, const std::filesystem::path& place,
                        checkpoint::Replace replace);

/// UserError if `path` is the model at `source`, or inside its folder.
void refuse_inside(const std::filesystem::path& path, const std::filesystem::path& source);

/// Checks whether a conversion to `form` may write at `path`. UserError if something exists there and
/// `replace` is No, or no conversion wrote it; if the folder above does not exist; and if `source` is inside
/// what would be replaced.
void check_output(const std::filesystem::path& path, Form form, checkpoint::Replace replace,
                  const std::filesystem::path& source);

/// UserError if a step's folder would have the name of another step, because readers rely on the name.
void check_step_name(const std::filesystem::path& path, int64_t step);

}  // namespace argosy::interop

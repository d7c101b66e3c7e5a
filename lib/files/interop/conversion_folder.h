// Output folders of conversions: Hugging Face folders and steps. `conversion.json` in each folder lists the
// files that the conversion wrote. A later conversion replaces the listed files and keeps all other files,
// which are the user's. Functions here also check whether a conversion may write to a path.
#pragma once

#include <cstdint>
#include <filesystem>

#include "checkpoint/partial_folder.h"
#include "interop/model_source.h"

namespace argosy::interop {

/// Writes the list of all files in `folder`. The list is durable when this returns.
void list_conversion(const std::filesystem::path& folder);

/// Whether a conversion wrote the contents of `path`: a folder with a list, an empty folder or a full file.
/// UserError if the list is not JSON.
bool is_conversion(const std::filesystem::path& path);

/// Publishes `result` at `place` (checkpoint/partial_folder.h). Files at `place` that a conversion wrote are
/// replaced; the new folder keeps all other files of the old folder. UserError, before `place` changes, if no
/// conversion wrote `place`, or if a file to keep has the name of a file in `result`. REQUIRES: `result` is
/// durable.
void publish_conversion(const std::filesystem::path& result, const std::filesystem::path& place,
                        checkpoint::Replace replace);

/// UserError if `path` is `source` or lies inside its folder.
void refuse_inside(const std::filesystem::path& path, const std::filesystem::path& source);

/// Checks whether a conversion of `source` to `form` may write at `path`. UserError if the folder above
/// `path` does not exist, if `path` is a symbolic link or "-", if a full file would have the name of another
/// form (.pt, .safetensors), if `path` lies inside `source`, or if `source` lies inside `path` or one of its
/// temporary names. If something exists at `path`, also UserError if `replace` is No, if no conversion wrote
/// the contents, or if a file would replace a folder with other files.
void check_output(const std::filesystem::path& path, Form form, checkpoint::Replace replace,
                  const std::filesystem::path& source);

/// UserError if a step's folder would have the name of another step, because readers rely on the name.
void check_step_name(const std::filesystem::path& path, int64_t step);

}  // namespace argosy::interop

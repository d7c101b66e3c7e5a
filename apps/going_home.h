// Checks of convert-checkpoint before a model goes to TorchTitan, and the settings of its optimizer.
#pragma once

#include <filesystem>
#include <string>

#include "interop/convert.h"

namespace argosy {

/// The settings of the optimizer's groups, of the configuration `file`, or, if that is empty, of the run that
/// saved the source. UserError if there is none, or if TorchTitan has no such optimizer.
interop::OptimizerSettings settings_at_home(const std::string& file, const interop::ModelSource& source,
                                            interop::TorchTitanNames names);

/// UserError for a name by which TorchTitan would take the folder for what it is not.
void check_titan_name(const std::filesystem::path& path, const interop::ModelSource& source, bool has_states);

}  // namespace argosy

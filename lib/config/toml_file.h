// Reads a configuration file; only its source file uses the TOML library.
#pragma once

#include <string>
#include <vector>

#include "config/setting.h"

namespace argosy::config {

/// Every key of the file, not yet checked against the field table. Throws UserError if the file cannot be
/// read, is not TOML (with line and column), or has an unknown section.
std::vector<Setting> read_toml(const std::string& path);

}  // namespace argosy::config

// Reads a configuration file; the only place that knows the TOML library.
#pragma once

#include <string>
#include <vector>

#include "config/setting.h"

namespace argosy::config {

/// Every key of the file, not yet checked against the field table. Throws UserError where the file cannot be
/// read, is no TOML (with line and column), or has a section that does not exist.
std::vector<Setting> read_toml(const std::string& path);

}  // namespace argosy::config

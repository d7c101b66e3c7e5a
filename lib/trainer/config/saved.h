// Reads a configuration back from the text that print_toml() made, which a checkpoint keeps.
#pragma once

#include <string>

#include "config/job_config.h"

namespace argosy::config {

/// UserError if a key is unknown, as those of other versions may be. `place` begins messages.
JobConfig parse_toml(const std::string& text, const std::string& place);

}  // namespace argosy::config

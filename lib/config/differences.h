// Lists the differences between two configurations, for people who resume a run.
#pragma once

#include <string>
#include <vector>

namespace argosy::config {

/// One line for each key whose value differs, "training.seq_len: 32 then, 64 now", in the order of `now`,
/// including keys that only one side has. Both texts are output of print_toml, of any version.
std::vector<std::string> differences(const std::string& then, const std::string& now);

}  // namespace argosy::config

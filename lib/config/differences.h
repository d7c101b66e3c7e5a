// How two runs were configured differently, for people who resume one.
#pragma once

#include <string>
#include <vector>

namespace argosy::config {

/// One line for each key whose value differs, "training.seq_len: 32 then, 64 now", in the order of `now`;
/// keys that only one of them has are among them. Both are what print_toml printed, of whichever version.
std::vector<std::string> differences(const std::string& then, const std::string& now);

}  // namespace argosy::config

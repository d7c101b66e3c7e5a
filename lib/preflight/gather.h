// An all-gather of texts of different lengths.
#pragma once

#include <string>
#include <vector>

#include "bench/ranks.h"

namespace argosy::preflight {

/// COLLECTIVE: returns every rank's text, by rank.
std::vector<std::string> gather_texts(const bench::RollCall& roll, const std::string& own);

}  // namespace argosy::preflight

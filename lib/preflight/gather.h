// Texts of different lengths, from every rank to every rank.
#pragma once

#include <string>
#include <vector>

#include "bench/ranks.h"

namespace argosy::preflight {

/// COLLECTIVE: every rank's text, by number.
std::vector<std::string> gather_texts(const bench::RollCall& roll, const std::string& own);

}  // namespace argosy::preflight

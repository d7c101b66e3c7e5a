// The results for programs: JSON and CSV, laid out as FORMAT.md says.
#pragma once

#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/ranks.h"
#include "bench/results.h"

namespace argosy::bench {

/// What was run, where; the environment is that of rank 0.
struct Setting {
    std::vector<std::string> arguments;
    std::string backend, library;
    std::vector<RankInfo> ranks;
};

std::string json_report(const Results& results, const Options& options, const Setting& setting);
std::string csv_report(const Results& results);

}  // namespace argosy::bench

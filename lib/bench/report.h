// The results for programs: JSON and CSV, laid out as FORMAT.md says.
#pragma once

#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/ranks.h"
#include "bench/results.h"

namespace argosy::bench {

/// How it was started, where; the environment is that of rank 0.
struct Setting {
    std::vector<std::string> arguments;
    std::vector<RankInfo> ranks;
};

/// The reports begin with these words. A later run replaces files that do, and no others.
inline constexpr const char* kJsonMark = "argosy nccl-bench";
inline constexpr const char* kCsvMark =
    "collective,axis,num_groups,group_size,cycle,size,count,type,redop,root";

std::string json_report(const Results& results, const Options& options, const Setting& setting);
std::string csv_report(const Results& results);

}  // namespace argosy::bench

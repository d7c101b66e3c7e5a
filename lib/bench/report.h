// The results for programs: JSON and CSV in the format of FORMAT.md.
#pragma once

#include <string>
#include <vector>

#include "bench/control_channel.h"
#include "bench/options.h"
#include "bench/results.h"

namespace argosy::bench {

/// How and where the run was started. The JSON report adds rank 0's environment.
struct Setting {
    std::vector<std::string> arguments;
    std::vector<RankInfo> ranks;
};

/// The reports begin with these strings. A later run overwrites only files that begin so.
inline constexpr const char* kJsonMark = "argosy nccl-bench";
inline constexpr const char* kCsvMark =
    "collective,axis,num_groups,group_size,cycle,size,count,type,redop,root";

std::string json_report(const Results& results, const Options& options, const Setting& setting);
std::string csv_report(const Results& results);

}  // namespace argosy::bench

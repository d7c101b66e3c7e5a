// The reports of a run: a table for people, and JSON and CSV for programs. The table has the lines and
// columns of nccl-tests, so that programs that parse the output of nccl-tests can parse the table. Columns
// that nccl-tests lacks come last: p50 and p99 of single iterations, for both placements. FORMAT.md defines
// every number.
#pragma once

#include <string>
#include <vector>

#include "bench/backend_choice.h"
#include "bench/benchmark.h"
#include "bench/control_channel.h"
#include "bench/options.h"

namespace argosy::bench {

/// How and where the run was started. The JSON report adds the environment of rank 0.
struct Setting {
    std::vector<std::string> arguments;
    std::vector<RankInfo> ranks;
};

/// The marks of the reports: the value of "format", which is the first key of a JSON report, and the
/// beginning of a CSV report. A later run overwrites only empty files and files with its mark.
inline constexpr const char* kJsonMark = "argosy nccl-bench";
inline constexpr const char* kCsvMark =
    "collective,axis,num_groups,group_size,cycle,size,count,type,redop,root";

std::string json_report(const Results& results, const Options& options, const Setting& setting);
std::string csv_report(const Results& results);

/// The text before all tables: the library, the options and the ranks.
std::string preamble(const Options& options, const BackendChoice& choice, const std::vector<RankInfo>& ranks);

std::string table_header(const AxisResults& axis, const Options& options);
std::string table_row(const Row& row, const Options& options);
std::string table_footer(const AxisResults& axis, const Options& options);

/// The text after all tables.
std::string epilogue(const Options& options);

}  // namespace argosy::bench

// The table for people. The table has exactly nccl-tests' text and columns, so that programs that parse
// nccl-tests' output can parse ours. The columns that nccl-tests lacks come last: p50 and p99 of single
// iterations, for both placements. FORMAT.md defines every number.
#pragma once

#include <string>
#include <vector>

#include "bench/carrier.h"
#include "bench/control_channel.h"
#include "bench/options.h"
#include "bench/results.h"

namespace argosy::bench {

/// The text before all tables: the options, the backend, and the ranks.
std::string preamble(const Options& options, const Carrier& carrier, const std::vector<RankInfo>& ranks);

std::string table_header(const AxisResults& axis, const Options& options);
std::string table_row(const Row& row, const Options& options);
std::string table_footer(const AxisResults& axis, const Options& options);

/// The text after all tables.
std::string epilogue(const Options& options);

}  // namespace argosy::bench

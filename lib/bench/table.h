// The table for people, with nccl-tests' text and columns to the letter, so that what reads its output reads
// ours. What it has not comes after its last column: p50 and p99 of single iterations, for both placements.
// FORMAT.md defines every number.
#pragma once

#include <string>
#include <vector>

#include "bench/carrier.h"
#include "bench/options.h"
#include "bench/ranks.h"
#include "bench/results.h"

namespace argosy::bench {

/// Before all tables: the options, what carries the data, and who takes part.
std::string preamble(const Options& options, const Carrier& carrier, const std::vector<RankInfo>& ranks);

std::string table_header(const AxisResults& axis, const Options& options);
std::string table_row(const Row& row, const Options& options);
std::string table_footer(const AxisResults& axis, const Options& options);

/// After all tables.
std::string epilogue(const Options& options);

}  // namespace argosy::bench

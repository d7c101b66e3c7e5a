// The rates of a run for those who keep them over time (FORMAT.md): the history of nodes, one JSON line per
// node and run in a file per node, and the figures of Prometheus. A node is compared with the median of its
// own past, which shows what a comparison with its peers does not: all nodes became slower, or this one does
// so little by little.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "preflight/preflight.h"

namespace argosy::preflight {

/// The rates of a node in one run.
struct HistoryEntry {
    double time = 0;   // of the run, seconds since 1970
    std::string kind;  // devices, ranks, type and memory: only entries of one kind are compared
    /// The number of nodes of the run; 0: unknown. Rates between nodes are only compared with those of runs
    /// on as many nodes.
    int num_nodes = 0;
    /// FLOP/s or bytes a second, by what was measured (FORMAT.md).
    std::map<std::string, std::vector<double>> rates = {};
};

/// An entry for each node of the report.
std::vector<HistoryEntry> history_entries(const Report& report);

/// A WARN for each kind of rate that is slower than the median of the past by slow_outliers(). The past has
/// at least three runs of the same kind with this rate, the newest last.
std::vector<Finding> compare_with_past(int node, const HistoryEntry& now,
                                       const std::vector<HistoryEntry>& past, const Report& report);

/// The newest entries in the file of a node, the newest last; none if there is no file. Lines that are no
/// entries are left out. RunError if the file cannot be read.
std::vector<HistoryEntry> read_history(const std::filesystem::path& file);

/// The beginning of a file that prometheus_report() has written.
inline constexpr const char* kPrometheusMark = "# HELP argosy_preflight_";

/// The rates and findings of this run in Prometheus's text format.
std::string prometheus_report(const Report& report);

// `file_done` is called after the file of each node.

/// Compares every node with its past in `folder`. A missing folder or file is an empty past. A file that
/// cannot be read is a WARN.
std::vector<Finding> compare_with_history(const std::filesystem::path& folder, const Report& report,
                                          const std::function<void()>& file_done = {});

/// Appends this run to the files of its nodes. RunError at the end if some could not be written.
void append_history(const std::filesystem::path& folder, const Report& report,
                    const std::function<void()>& file_done = {});

}  // namespace argosy::preflight

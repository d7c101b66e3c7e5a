// Finds the root cause of a wait that has timed out, from the reports that the watchdogs of all ranks made at
// one moment. Pure functions.
//
// The search starts with the groups of the late waits. If a member of such a group waits for another group,
// the search continues with that group, and so on. A member is missing if it waits for nothing and has not
// done what the others need (Needs): reach the same launch, or wait as well. A rank that does not answer is
// missing, too. Cost for n ranks with a few queues each: n log n time, and memory for one report per rank. A
// list of members is expanded once for each group, not for each rank that waits for the group.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "watch/report.h"

namespace argosy::watch {

struct Reports {
    int num_ranks = 0;
    std::map<int, Report> by_rank;  // of the ranks that have answered
    std::vector<int> unreachable;   // ascending; ranks that cannot be asked, so they do not count as missing
};

struct RootCause {
    std::vector<int> missing;  // ascending; empty if all ranks that others wait for wait themselves
    int reporter = 0;          // the rank whose wait the message is about
    /// The end of a message, or "": ". The others wait for all-gather over tp (operation 8): rank 1".
    std::string details;
    std::string message;  // for the error that ends the job
};

/// None if no wait is late and no rank reports an error.
std::optional<RootCause> find_root_cause(const Reports& reports);

/// The message that ends the job if `wait` is late. Ranks have their numbers in the outermost group.
std::string timeout_text(const WaitReport& wait, const std::vector<int>& missing, const std::string& details);

/// The message that ends the job if the connections of `ranks` close without notice.
std::string lost_ranks_text(const std::vector<int>& ranks);

enum class ConnectionToRank0 { Silent, NeverMade };
/// The message of a rank that gets no answer from rank 0. If the connection was never made, the message names
/// no missing rank, because rank 0 may be healthy.
std::string no_answer_of_rank_0_text(const Report& own, ConnectionToRank0 connection);

}  // namespace argosy::watch

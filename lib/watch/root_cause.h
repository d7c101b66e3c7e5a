// Finds the root cause of a wait that has timed out, from the reports that the watchdogs of all ranks made at
// one moment. Pure functions.
//
// The late waits are followed to their end: the members of a late wait that wait themselves are followed to
// what they wait for, and so on. A member at the end of such a chain, which waits for nothing and has not
// come to what the others wait for, is missing. A rank that does not answer is missing as well. Cost for n
// ranks of a few queues each: n log n time, and memory for one report a rank. A list of members is expanded
// once for each group, not for each rank that waits for the group.
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
    std::vector<int> unreachable;   // ascending; ranks that cannot be asked, which are not counted as missing
};

struct RootCause {
    std::vector<int> missing;  // ascending; empty if every rank that is waited for waits itself
    int reporter = 0;          // the rank whose wait the message is about
    /// ". The others wait for all-gather over tp (operation 8): rank 1", ". Rank 2 came to ..."; may be
    /// empty.
    std::string details;
    std::string message;  // for the error that ends the job
};

/// Nothing if no wait is late and no rank reports an error.
std::optional<RootCause> find_root_cause(const Reports& reports);

/// The message that ends the job when `wait` is late, with the members' numbers in the outermost group.
std::string timeout_text(const WaitReport& wait, const std::vector<int>& missing, const std::string& details);

/// The message if a rank's connection closes without notice.
std::string lost_ranks_text(const std::vector<int>& ranks);

/// The message of a rank that gets no answer from rank 0. A rank that never had a connection to rank 0 names
/// no missing rank, because rank 0 may be well.
enum class ConnectionToRank0 { Silent, NeverMade };
std::string no_answer_of_rank_0_text(const Report& own, ConnectionToRank0 connection);

}  // namespace argosy::watch

// Finds the root cause of a wait that has timed out, from the reports that the watchdogs of all ranks made at
// one moment, and from the operations that the ranks have submitted. Pure functions.
//
// Missing ranks. The search starts with the groups of the late waits. If a member of such a group waits for
// another group, the search continues with that group, and so on. A member is missing if it waits for nothing
// and has not done what the others need (Needs): reach the same launch, or wait as well. A rank that does not
// answer is missing, too. Cost for n ranks with a few queues each: n log n time, and memory for one report
// per rank. A list of members is expanded once for each group, not for each rank that waits for the group.
//
// File system. A rank that is missing because it waits for the file system (StorageWait) does not count as
// missing. If all missing ranks do, no wait counts as late before a wait for the file system is late itself.
// After a long wait for the file system has ended, the rank does not count as missing for the time limit of a
// wait for ranks: the others' waits are as old as the stall, and the rank begins only now.
//
// Different operations. text_of_first_difference() finds the first operation of each stream
// (flight_recorder.h) on which ranks differ, among those that the ranks still hold, and puts the oldest of
// them into words.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "watch/flight_recorder.h"
#include "watch/host_waits.h"
#include "watch/report.h"

namespace argosy::watch {

struct Reports {
    int num_ranks = 0;
    std::map<int, RankReport> by_rank;  // of the ranks that have answered
    std::vector<int> unreachable;  // ascending; ranks that cannot be asked, so they do not count as missing
};

struct RootCause {
    WaitCause cause;
    int reporter = 0;                // the rank whose wait the message is about
    std::optional<WaitReport> wait;  // of that rank; none if no rank waits
    std::string error;               // of NCCL or of the GPU's driver, with the rank; empty: none

    /// The error that ends the job.
    std::string message() const;

    /// The cause and the reporter, as watchdogs send them.
    std::string text() const;
    static RootCause parse(const std::string& text);
};

/// None if no wait is late and no rank reports an error.
std::optional<RootCause> find_root_cause(const Reports& reports);

/// The message that ends the job if `wait` is late.
std::string timeout_text(const WaitReport& wait, const WaitCause& cause);

/// Describes the oldest of the first operations of streams on which ranks differ: "rank 3 submitted
/// all-gather of 8 fp32 as collective 12 over tp, where rank 0, 1 submitted all-reduce of 8 fp32". Empty if
/// there is none. Takes time in proportion to the operations of all ranks.
std::string text_of_first_difference(const std::map<int, std::vector<StreamOps>>& by_rank);

/// Says where the ranks' files are, and names a rank that has answered and has no file. `files` has the error
/// of each rank that has tried to write, or "". Empty if there is no folder.
std::string text_of_files(const std::filesystem::path& folder, const Reports& reports,
                          const std::map<int, std::string>& files);

/// The message that ends the job if the connections of `ranks` close without notice.
std::string lost_ranks_text(const std::vector<int>& ranks);

/// The message of a rank that gets no answer from rank 0. `silent` are the ranks that may be at fault: rank 0
/// and those between, or the one whose connection has closed. Empty: this rank never had a connection, so
/// rank 0 may be healthy.
std::string no_answer_of_rank_0_text(const RankReport& own, const std::vector<int>& silent);

}  // namespace argosy::watch

// Who is late, worked out from what the ranks' watchdogs have seen: pure, of all ranks at one moment.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/launch_line.h"

namespace argosy::comm {

/// What a rank's watchdog knows of its own rank.
struct WatchReport {
    std::vector<LaunchLine::Standing> lines;
    std::string error;            // of NCCL, or that the GPU's driver does not answer
    double seconds_to_limit = 0;  // of the longest wait; negative: it has been late for so long

    /// As it travels; of lines on which nothing is under way without their members.
    std::string text() const;
    static WatchReport of_text(const std::string& text);
};

struct Watched {
    int num_ranks = 0;
    double timeout_seconds = 0;
    std::map<int, WatchReport> reports;  // of the ranks that have answered
    std::vector<int> apart;              // ranks that cannot answer, and are not missed for that
};

/// The message for the job's end, as a wait on the host ends; none where nothing is late any more. Missing is
/// who does not answer; and who has not come to what another rank waits for, and waits for nothing itself.
std::optional<std::string> verdict(const Watched& watched);

/// The message where a rank's connection is gone without a word.
std::string verdict_of_loss(const std::vector<int>& ranks);

/// The message of a rank that asks rank 0 in vain.
std::string verdict_alone(const WatchReport& own, double timeout_seconds);

}  // namespace argosy::comm

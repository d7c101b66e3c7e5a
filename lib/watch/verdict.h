// Works out the verdict (which ranks are missing, and the message that ends the job) from the reports that
// all ranks' watchdogs made at one moment. Pure functions; rank 0's watchdog calls verdict(), other ranks
// need only the messages for a lost connection and for a silent rank 0.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "watch/launch_queue.h"

namespace argosy::watch {

/// A watchdog's report on its own rank.
struct WatchReport {
    std::vector<LaunchQueue::QueueState> queues;
    std::string error;            // error of NCCL, or that the GPU's driver does not answer
    double seconds_to_limit = 0;  // time left for the longest wait; negative: time since its timeout

    /// Wire format. Queues with no launch under way are sent without their member list.
    std::string text() const;
    static WatchReport of_text(const std::string& text);
};

struct Watched {
    int num_ranks = 0;
    double timeout_seconds = 0;
    std::map<int, WatchReport> reports;  // of the ranks that have answered
    std::vector<int> apart;              // ranks that rank 0 cannot ask; not counted as missing
};

/// Returns the message that ends the job, in the format of a timeout on the host; nullopt if no operation is
/// late any more. A rank is missing if it does not answer, or if it has not reached an operation that another
/// rank waits for and does not wait for anything itself.
std::optional<std::string> verdict(const Watched& watched);

/// The message if a rank's connection closes without notice.
std::string verdict_of_loss(const std::vector<int>& ranks);

/// The message of a rank that gets no answer from rank 0.
std::string verdict_alone(const WatchReport& own, double timeout_seconds);

}  // namespace argosy::watch

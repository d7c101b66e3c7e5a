// Words the errors that end a job when ranks have waited longer than the timeout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mpi/roll.h"

namespace argosy::watch {

/// "all-reduce over dp_shard (operation 12)"; ends in "(operation 12 of graph 3)" within launch 3 of a graph
/// (the launches of all graphs are counted together).
std::string operation_name(const std::string& kind, const std::string& group, int64_t number,
                           int64_t graph = 0);

/// A wait that has timed out; `members` are numbers in the outermost group.
struct WaitInVain {
    std::string operation;
    std::vector<int> members;
    double seconds;
};
/// The message of the error that ends the job.
std::string timeout_text(const WaitInVain& wait, const mpi::Attendance& found);

}  // namespace argosy::watch

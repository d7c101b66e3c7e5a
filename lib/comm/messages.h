// What ranks that wait in vain are told, in words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mpi/roll.h"

namespace argosy::comm {

/// "all-reduce over dp_shard (operation 12)", or "(operation 12 of graph 3)" in that launch of a graph.
std::string operation_name(const std::string& kind, const std::string& group, int64_t number,
                           int64_t graph = 0);

/// What ranks have waited for in vain, for how long; ranks have their numbers in the outermost group.
struct WaitInVain {
    std::string operation;
    std::vector<int> members;
    double seconds;
};
/// The message of the error that ends the job.
std::string timeout_text(const WaitInVain& wait, const mpi::Attendance& found);

}  // namespace argosy::comm

// Collectives on a number, and on texts and lists of any length, for ranks that plan a save or find a
// checkpoint together. `own` is this rank's value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace argosy::resume {

/// COLLECTIVE: the largest number of all ranks.
int64_t maximum(comm::Communicator& group, int64_t own);

/// COLLECTIVE: the text of each rank, by rank. REQUIRES: no NUL in `own`.
std::vector<std::string> all_gather_texts(comm::Communicator& group, const std::string& own);

/// COLLECTIVE: returns `own` of rank `root` on every rank. The other ranks' `own` is ignored.
std::string broadcast_text(comm::Communicator& group, const std::string& own, int root);

/// COLLECTIVE: returns rank 0's `own` on every rank. The other ranks' `own` is ignored.
std::vector<int64_t> broadcast_from_rank_0(comm::Communicator& group, const std::vector<int64_t>& own);

}  // namespace argosy::resume

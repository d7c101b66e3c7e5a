// Formats lists of ranks for messages.
#pragma once

#include <fmt/ranges.h>

#include <cstddef>
#include <span>
#include <string>

namespace argosy::mpi {

/// "3, 5, ..." with at most `max_named` ranks.
inline std::string listed(std::span<const int> ranks, size_t max_named = 16) {
    const bool all = ranks.size() <= max_named;
    return fmt::format("{}{}", fmt::join(all ? ranks : ranks.first(max_named), ", "), all ? "" : ", ...");
}

/// "missing: rank 3, 5"; jobs/shell/job.sh looks for this format.
inline std::string named_missing(std::span<const int> ranks) {
    constexpr size_t kMaxMissing = 400;
    return "missing: rank " + listed(ranks, kMaxMissing);
}

}  // namespace argosy::mpi

// An all-gather for the start of a program, before there is a communicator with timeouts. If a rank does not
// come, the process ends as in a BlockingCall.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "mpi/comm.h"

namespace argosy::mpi {

/// COLLECTIVE: gathers `own` of every rank into `all`, in the order of ranks. REQUIRES: `own` has the same
/// size on every rank. `what` names the data in messages.
void all_gather_bytes_at_start(const Comm& ranks, void* all, std::span<const std::byte> own,
                               const std::string& what);

/// COLLECTIVE: returns the items of all ranks, those of rank 0 first. REQUIRES: every rank passes the same
/// number of items.
template <class Item>
std::vector<Item> all_gather_at_start(const Comm& ranks, std::span<const Item> own, const std::string& what) {
    static_assert(std::is_trivially_copyable_v<Item>);
    std::vector<Item> all(own.size() * static_cast<size_t>(ranks.size()));
    all_gather_bytes_at_start(ranks, all.data(), std::as_bytes(own), what);
    return all;
}

}  // namespace argosy::mpi

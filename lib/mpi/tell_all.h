// What ranks tell each other of themselves at the start, when there is no group with bounded waits yet: it
// ends as a BlockingCall does where a rank stays away.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "mpi/comm.h"

namespace argosy::mpi {

/// COLLECTIVE: `own` of every rank into `all`, by number, as many bytes each. `what` is it called in
/// messages.
void tell_all_bytes(const Comm& ranks, void* all, std::span<const std::byte> own, const std::string& what);

/// COLLECTIVE: what every rank tells, as many items each, those of rank 0 first.
template <class Item>
std::vector<Item> tell_all(const Comm& ranks, std::span<const Item> own, const std::string& what) {
    static_assert(std::is_trivially_copyable_v<Item>);
    std::vector<Item> all(own.size() * static_cast<size_t>(ranks.size()));
    tell_all_bytes(ranks, all.data(), std::as_bytes(own), what);
    return all;
}

}  // namespace argosy::mpi

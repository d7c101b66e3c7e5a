#include "comm/group.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "comm/mpi_communicator.h"
#include "comm/shared_memory_communicator.h"

namespace argosy::comm {

Group::Group(mpi::Comm comm, std::string name, const GroupOptions& options)
    : comm_(std::move(comm)),
      name_(std::move(name)),
      options_(options),
      rank_(comm_.rank()),
      members_(comm_.size()),
      exchanges_(std::make_shared<Exchanges>()) {
    std::iota(members_.begin(), members_.end(), 0);
}

Group Group::subgroup(std::span<const int> ranks, std::string name) const {
    Group group(comm_.subgroup(ranks), std::move(name), options_);
    std::transform(ranks.begin(), ranks.end(), group.members_.begin(),
                   [&](int rank) { return members_[rank]; });
    group.exchanges_ = exchanges_;
    return group;
}

std::string Group::numbers_of(std::span<const int> ranks) const {
    constexpr size_t kMostNamed = 16;
    std::vector<int> numbers;
    for (const int rank : ranks.first(std::min(ranks.size(), kMostNamed))) numbers.push_back(members_[rank]);
    return fmt::format("{}{}", fmt::join(numbers, ", "), numbers.size() < ranks.size() ? ", ..." : "");
}

TimeoutError Group::timeout(OpKind kind, int64_t operation, const std::string& missing) const {
    std::vector<int> all(members_.size());
    std::iota(all.begin(), all.end(), 0);
    return TimeoutError(
        "{} over {} (operation {}; ranks {}): no answer in {} s{}. A peer is dead, stuck or much slower; its own "
        "message, if any, says why (comm.train_timeout_seconds sets the limit)",
        kind_name(kind), name_, operation, numbers_of(all), options_.timeout_seconds, missing);
}

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<const Group> group) {
    const int64_t ring_bytes = group->options().shared_memory_bytes;
    if (ring_bytes > 0 && group->size() > 1 && group->comm().within_one_node()) {
        MpiCommunicator peers(group);
        if (auto exchange = Exchange::open(peers, ring_bytes)) {
            return std::make_unique<SharedMemoryCommunicator>(std::move(group), std::move(exchange));
        }
    }
    return std::make_unique<MpiCommunicator>(std::move(group));
}

std::unique_ptr<Communicator> make_communicator(mpi::Comm comm, std::string name,
                                                const GroupOptions& options) {
    return make_communicator(std::make_shared<const Group>(std::move(comm), std::move(name), options));
}

}  // namespace argosy::comm

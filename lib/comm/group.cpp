#include "comm/group.h"

#include <numeric>
#include <utility>

#include "comm/mpi_communicator.h"
#include "comm/nccl_communicator.h"
#include "comm/shared_memory_communicator.h"
#include "comm/staged_communicator.h"
#include "watch/messages.h"
#include "watch/watchdog.h"

namespace argosy::comm {
namespace {

std::unique_ptr<Communicator> communicator_of_host(std::shared_ptr<const Group> group) {
    const int64_t ring_bytes = group->options().shared_memory_bytes;
    if (ring_bytes > 0 && group->size() > 1 && group->comm().within_one_node()) {
        MpiCommunicator peers(group);
        if (auto exchange = Exchange::open(peers, ring_bytes)) {
            return std::make_unique<SharedMemoryCommunicator>(std::move(group), std::move(exchange));
        }
    }
    return std::make_unique<MpiCommunicator>(std::move(group));
}

}  // namespace

Group::Group(mpi::Comm comm, std::string name, const GroupOptions& options)
    : comm_(std::move(comm)),
      name_(std::move(name)),
      options_(options),
      rank_(comm_.rank()),
      members_(comm_.size()),
      exchanges_(std::make_shared<Exchanges>()),
      roll_(std::make_shared<mpi::Roll>(comm_, options.timeout_seconds)),
      gpu_(options.gpu_path == GpuPath::Nccl ? std::make_shared<watch::GpuSide>() : nullptr) {
    std::iota(members_.begin(), members_.end(), 0);
}

Group::Group(const Group& whole, std::span<const int> ranks, std::string name)
    : comm_(whole.comm_.subgroup(ranks)),
      name_(std::move(name)),
      options_(whole.options_),
      rank_(comm_.rank()),
      exchanges_(whole.exchanges_),
      roll_(whole.roll_),
      gpu_(whole.gpu_) {
    for (const int rank : ranks) members_.push_back(whole.members_[rank]);
}

std::string Group::name_of(OpKind kind, int64_t operation) const {
    return watch::operation_name(kind_name(kind), name_, operation);
}

TimeoutError Group::timeout(const std::string& operation, const mpi::Attendance& found) const {
    return TimeoutError(found.spoken_for ? Reach::SpokenFor : Reach::OneRank, "{}",
                        watch::timeout_text({operation, members_, options_.timeout_seconds}, found));
}

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<const Group> group,
                                                std::shared_ptr<watch::Watchdog> watchdog) {
    auto host = communicator_of_host(group);
    switch (group->options().gpu_path) {
        case GpuPath::Nccl:
            if (!watchdog && group->size() > 1) {
                watchdog = std::make_shared<watch::Watchdog>(group->comm(), group->gpu(),
                                                             group->options().timeout_seconds);
            }
            return std::make_unique<NcclCommunicator>(std::move(group), std::move(host), std::move(watchdog));
        case GpuPath::Host:
            return std::make_unique<StagedCommunicator>(std::move(group), std::move(host));
        case GpuPath::None:
        case GpuPath::Choose:
            break;
    }
    return host;
}

std::unique_ptr<Communicator> make_communicator(mpi::Comm comm, std::string name,
                                                const GroupOptions& options) {
    GroupOptions chosen = options;
    chosen.gpu_path = choose_gpu_path(comm, options.gpu_path);
    return make_communicator(std::make_shared<const Group>(std::move(comm), std::move(name), chosen));
}

}  // namespace argosy::comm

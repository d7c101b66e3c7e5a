#include "comm/group.h"

#include <numeric>
#include <utility>

#include "comm/host_communicators.h"
#include "comm/nccl_communicator.h"
#include "watch/root_cause.h"

namespace argosy::comm {
namespace {

std::unique_ptr<Communicator> make_host_communicator(std::shared_ptr<const Group> group) {
    const int64_t ring_bytes = group->options().shared_memory_bytes;
    if (ring_bytes > 0 && group->size() > 1 && group->comm().within_one_node()) {
        MpiCommunicator peers(group);
        if (auto exchange = Exchange::open(peers, ring_bytes)) {
            return std::make_unique<SharedMemoryCommunicator>(std::move(group), std::move(exchange));
        }
    }
    return std::make_unique<MpiCommunicator>(std::move(group));
}

std::vector<int> members_of(const Group& parent, std::span<const int> ranks) {
    std::vector<int> members;
    for (const int rank : ranks) members.push_back(parent.members()[rank]);
    return members;
}

mpi::Comm make_subgroup(const Group& parent, std::span<const int> ranks, const std::string& name) {
    const std::vector<int> members = members_of(parent, ranks);
    const watch::HostWait wait(parent.watchdog().waits(),
                               parent.awaited_making("group " + name, name, members),
                               watch::HostWait::Kind::Blocks);
    return parent.comm().subgroup(ranks);
}

}  // namespace

Group::Group(mpi::Comm comm, std::string name, const GroupOptions& options)
    : comm_(std::move(comm)),
      name_(std::move(name)),
      options_(options),
      rank_(comm_.rank()),
      members_(comm_.size()),
      exchanges_(std::make_shared<Exchanges>()),
      gpu_(options.gpu_path == GpuPath::Nccl ? std::make_shared<watch::GpuState>() : nullptr),
      watchdog_(std::make_shared<watch::Watchdog>(
          comm_, gpu_, watch::WaitLimit{options.timeout_seconds, options.timeout_setting},
          options.flight_folder,
          watch::WaitLimit{options.storage_timeout_seconds, watch::Watchdog::kStorageLimit.setting})) {
    std::iota(members_.begin(), members_.end(), 0);
    flight_number_ = watchdog_->flight().open(name_, members_);
}

Group::Group(const Group& parent, std::span<const int> ranks, std::string name)
    : comm_(make_subgroup(parent, ranks, name)),
      name_(std::move(name)),
      options_(parent.options_),
      rank_(comm_.rank()),
      members_(members_of(parent, ranks)),
      exchanges_(parent.exchanges_),
      gpu_(parent.gpu_),
      watchdog_(parent.watchdog_),
      flight_number_(watchdog_->flight().open(name_, members_)) {}

void Group::record(const Op& op, watch::FlightSpan& launch, watch::FlightState state) const {
    using Way = watch::FlightOp::Way;
    if (size() == 1) return;
    const char* kind = kind_name(op.kind);
    if (op.reduction == Reduction::Max && op.kind == OpKind::AllReduce) kind = "all-reduce (max)";
    if (op.reduction == Reduction::Max && op.kind == OpKind::ReduceScatter) kind = "reduce-scatter (max)";
    watchdog_->flight().add(flight_number_,
                            {.kind = kind,
                             .way = op.kind == OpKind::Send      ? Way::Send
                                    : op.kind == OpKind::Receive ? Way::Receive
                                                                 : Way::Collective,
                             .peer = op.peer < 0 ? -1 : members_[op.peer],
                             .elements = num_elements(op),
                             .type = element_type(op)},
                            launch, state);
}

watch::FlightSpan Group::record_launch(const std::string& what) const {
    watch::FlightSpan launch;
    watchdog_->flight().add(flight_number_, {.kind = watchdog_->flight().kept(what)}, launch);
    return launch;
}

watch::AwaitedOperation Group::awaited(OpKind kind, int64_t number) const {
    return {.operation =
                [=, this] {
                    return watch::operation_name(kind_name(kind), name_, {0, number});
                },
            .group = name_,
            .members = members_,
            .limit = watchdog_->limit()};
}

TimeoutError Group::timeout(const watch::AwaitedOperation& awaited, const watch::WaitFailure& failure) const {
    return TimeoutError(failure.reported_by_another ? Reach::ReportedByAnother : Reach::OneRank, "{}",
                        watch::timeout_text(watch::report_of(awaited), failure.cause));
}

watch::AwaitedOperation Group::awaited_making(const std::string& what, const std::string& group,
                                              const std::vector<int>& members) const {
    return {.operation = [what] { return "the making of " + what; },
            .group = group,
            .members = members,
            .limit = watchdog_->limit()};
}

std::unique_ptr<Communicator> GroupCommunicator::subgroup(std::span<const int> ranks,
                                                          std::string name) const {
    return make_communicator(std::make_shared<const Group>(group_->subgroup(ranks, std::move(name))));
}

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<const Group> group) {
    auto host = make_host_communicator(group);
    if (!group->gpu()) return host;
    return std::make_unique<NcclCommunicator>(std::move(group), std::move(host));
}

std::unique_ptr<Communicator> make_communicator(mpi::Comm comm, std::string name,
                                                const GroupOptions& options) {
    GroupOptions chosen = options;
    chosen.gpu_path = choose_gpu_path(comm, options.gpu_path);
    return make_communicator(std::make_shared<const Group>(std::move(comm), std::move(name), chosen));
}

}  // namespace argosy::comm

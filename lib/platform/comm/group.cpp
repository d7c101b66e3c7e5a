#include "comm/group.h"

#include <numeric>
#include <utility>

#include "base/text.h"
#include "comm/nccl_communicator.h"
#include "cuda/device.h"
#include "mpi/start_up.h"
#include "nccl/comm.h"
#include "nccl/device_id.h"
#include "watch/root_cause.h"

namespace argosy::comm {
namespace {

void require_new_nccl() {
    if (nccl::version() >= nccl::kMinVersion) return;
    throw UserError(
        "this process loaded NCCL {}, but needs 2.26 or newer: look for an older libnccl in LD_LIBRARY_PATH "
        "and in the loaded modules",
        nccl::version_text());
}

/// COLLECTIVE. Throws UserError if ranks share a GPU.
void require_own_gpus(const mpi::Comm& world) {
    const nccl::DeviceId own = nccl::device_id(cuda::current_device());
    const auto ids = mpi::all_gather_at_start(world, std::span(&own, 1), "the ranks' GPUs");
    std::vector<int> sharing;
    for (const auto& [owner, rank] : nccl::ranks_that_share(ids)) sharing.push_back(rank);
    if (sharing.empty()) return;
    throw UserError(
        "rank {} shares its GPU with another rank, and NCCL needs one GPU per rank: start as many ranks on a "
        "node as it has GPUs",
        listed(sharing));
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
          watch::WaitLimit{options.storage_timeout_seconds, watch::Watchdog::kStorageLimit.setting},
          options.watchdog_fan_out)) {
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

bool all_see_gpus(const mpi::Comm& world, int num_own) {
    std::vector<int> without;
    for (int rank = 0; const int count : mpi::all_gather_at_start(world, std::span<const int>(&num_own, 1),
                                                                  "the number of GPUs")) {
        if (count == 0) without.push_back(rank);
        ++rank;
    }
    if (without.empty() || std::ssize(without) == world.size()) return without.empty();
    throw UserError(
        "rank {} sees no GPU, but other ranks do: check nvidia-smi on its node, CUDA_VISIBLE_DEVICES, "
        "ARGOSY_DEVICE and the job's --gpus options",
        listed(without));
}

GpuPath choose_gpu_path(const mpi::Comm& world, GpuPath wanted) {
    if (nccl::version() == 0 && wanted == GpuPath::Nccl) {
        throw UserError(
            "comm.gpu_path is set, but this build has no CUDA: leave it out, or configure with "
            "-DARGOSY_CUDA=ON (preset cuda)");
    }
    if (nccl::version() == 0 || wanted == GpuPath::None) return GpuPath::None;
    if (!all_see_gpus(world, cuda::device_count())) {
        if (wanted == GpuPath::Auto) return GpuPath::None;
        throw UserError(
            "comm.gpu_path is set, but no rank sees a GPU: leave it out, or check nvidia-smi, "
            "CUDA_VISIBLE_DEVICES and the job's --gpus options");
    }
    require_own_gpus(world);
    require_new_nccl();
    return GpuPath::Nccl;
}

std::unique_ptr<Communicator> make_communicator(mpi::Comm comm, std::string name,
                                                const GroupOptions& options) {
    GroupOptions chosen = options;
    chosen.gpu_path = choose_gpu_path(comm, options.gpu_path);
    return make_communicator(std::make_shared<const Group>(std::move(comm), std::move(name), chosen));
}

}  // namespace argosy::comm

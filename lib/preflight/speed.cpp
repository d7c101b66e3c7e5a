#include "preflight/speed.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "bench/backend_choice.h"
#include "bench/collective.h"
#include "bench/measure.h"
#include "comm/communicator.h"
#include "observe/peak_flops.h"

namespace argosy::preflight {
namespace {

constexpr int kProductRounds = 3;  // the best round counts; the others may be disturbed
constexpr int kRoundsOfPairs = 3;
constexpr size_t kMaxPairBytes = 64 << 20;
constexpr size_t kTrialBytes = 4 << 20;  // a trial of this size predicts the time of larger operations
constexpr int kMinIterations = 3, kMaxIterations = 50;

class Meter {
  public:
    Meter(const mpi::Comm& world, const bench::ControlChannel& control, const SpeedOptions& options)
        : world_(world),
          control_(control),
          options_(options),
          choice_(bench::choose_backend(world, control, options.backend)) {}

    const bench::BackendChoice& choice() const { return choice_; }

    /// The device of the matrix products. A CPU build of LibTorch computes on CPUs only, even where the
    /// tests' stand-ins for GPUs exist.
    c10::Device device() const {
        if (choice_.devices.empty() || !c10::impl::hasDeviceGuardImpl(c10::kCUDA)) return c10::kCPU;
        return {c10::kCUDA, static_cast<c10::DeviceIndex>(choice_.devices[world_.rank()].number)};
    }

    std::vector<double> products() const {
        std::vector<double> best(world_.size());
        for (int round = 0; round < kProductRounds; ++round) {
            control_.barrier("matrix products");
            const auto peak = observe::measure_gemm_peak(options_.type, options_.seconds_each, device());
            for (int rank = 0; const double other : control_.exchange(peak.flops_per_second)) {
                best[rank] = std::max(best[rank], other);
                ++rank;
            }
        }
        return best;
    }

    OperationSpeed operation(const StepOperation& operation) {
        const Measured measured = measure(operation.kind, backend_of(operation.groups));
        OperationSpeed speed{operation, {}, measured.num_wrong};
        speed.operation.kind = measured.kind;
        for (const std::vector<int>& group : operation.groups) {
            double slowest = 0;
            for (const int rank : group) slowest = std::max(slowest, measured.seconds[rank]);
            const double factor = operation.kind.collective->bus_factor(static_cast<int>(group.size()));
            speed.bus_bandwidths.push_back(static_cast<double>(measured.kind.bytes) * factor / slowest);
        }
        return speed;
    }

    /// Measures the pairs of nodes and writes what belongs to them.
    void pairs_of_nodes(const std::vector<Node>& nodes, Speeds& speeds) const {
        const size_t bytes = std::min(kMaxPairBytes, options_.max_bytes);
        const bench::Case kind{.collective = &bench::collective_named("sendrecv"),
                               .type = ElementType::Float32,
                               .reduction = bench::Reduction::None,
                               .chunk_elements = bytes / sizeof(float),
                               .bytes = bytes};
        for (const Round& round : rounds_of_pairs(static_cast<int>(nodes.size()), kRoundsOfPairs)) {
            speeds.nodes.resize(nodes.size());
            speeds.rails.resize(nodes.size());
            const Measured measured = measure(kind, *backend_on(pair_of_own(nodes, round)));
            for (int node = 0; node < std::ssize(nodes); ++node) {
                if (round[node] != node) add_pair(nodes, node, round[node], measured, speeds);
            }
        }
    }

  private:
    struct Measured {
        bench::Case kind;                // with as many bytes as the time allows
        std::vector<double> seconds;     // time of one operation by rank, the better of two measurements
        std::vector<int64_t> num_wrong;  // elements by rank
    };

    bench::Options bench_options() const {
        return {.iterations = 2,
                .across_ranks = bench::AcrossRanks::Max,
                .timeout_seconds = options_.timeout_seconds};
    }
    using Groups = std::vector<std::vector<int>>;

    /// COLLECTIVE: the backend of this rank's group. Backends are kept, because NCCL takes seconds to connect
    /// a large group. The key is the list of all groups, so all ranks agree on whether to make a new backend.
    bench::Backend& backend_of(const Groups& groups) {
        std::unique_ptr<bench::Backend>& backend = backends_[groups];
        if (!backend) {
            const auto is_own = [&](const auto& group) {
                return std::ranges::binary_search(group, world_.rank());
            };
            backend = backend_on(*std::ranges::find_if(groups, is_own));
        }
        return *backend;
    }

    std::unique_ptr<bench::Backend> backend_on(const std::vector<int>& members) const {
        return bench::make_backend(world_, control_, members, choice_, bench_options());
    }

    /// COLLECTIVE: each group measures on its own backend. After the trial of affordable(), the first
    /// measurement has two iterations, verifies the result, and shows how many iterations fit into
    /// `seconds_each`. Two measurements with so many iterations follow.
    Measured measure(const bench::Case& wanted, bench::Backend& backend) const {
        bench::Options options = bench_options();
        bench::Measurement measurement(backend, world_, control_, options, wanted.bytes);
        const bench::Case kind = affordable(wanted, measurement, backend.size());
        const auto again = [&] { return measurement.measure(kind, bench::Placement::OutOfPlace); };
        const bench::Timing first = again();
        options.checks = 0;  // `measurement` refers to `options`
        options.iterations = std::clamp(static_cast<int>(options_.seconds_each / first.seconds),
                                        kMinIterations, kMaxIterations);
        std::vector<double> best = control_.exchange(again().own_seconds);
        for (int rank = 0; const double second : control_.exchange(again().own_seconds)) {
            best[rank] = std::min(best[rank], second);
            ++rank;
        }
        return {kind, best, control_.exchange(first.own_wrong)};
    }

    /// COLLECTIVE: returns `wanted`, or the same case with fewer bytes if one operation of `wanted` would
    /// take longer than `seconds_each`. Fewer bytes saturate such a slow link, too. All ranks get the same
    /// case, because the trial's time is the same on all ranks.
    bench::Case affordable(const bench::Case& wanted, bench::Measurement& measurement, int num_ranks) const {
        if (wanted.bytes <= kTrialBytes) return wanted;
        const auto trial = bench::case_of(wanted, kTrialBytes, num_ranks);
        if (!trial) return wanted;
        const double seconds = measurement.measure(*trial, bench::Placement::OutOfPlace).seconds;
        const double bytes = static_cast<double>(trial->bytes) * options_.seconds_each / seconds;
        if (bytes >= static_cast<double>(wanted.bytes)) return wanted;
        return bench::case_of(wanted, static_cast<size_t>(bytes), num_ranks).value_or(*trial);
    }

    /// This rank and the rank with the same index on the partner node; this rank alone if no such rank
    /// exists.
    std::vector<int> pair_of_own(const std::vector<Node>& nodes, const Round& round) const {
        for (size_t node = 0; node < nodes.size(); ++node) {
            const auto own = std::ranges::find(nodes[node].ranks, world_.rank());
            if (own == nodes[node].ranks.end()) continue;
            const auto number = static_cast<size_t>(own - nodes[node].ranks.begin());
            const Node& partner = nodes[round[node]];
            if (number >= partner.ranks.size() || partner.ranks[number] == *own) break;
            return {std::min(*own, partner.ranks[number]), std::max(*own, partner.ranks[number])};
        }
        return {world_.rank()};
    }

    /// Adds what `node` and its partner measured, as seen by `node`.
    static void add_pair(const std::vector<Node>& nodes, int node, int partner, const Measured& measured,
                         Speeds& speeds) {
        const auto& [kind, seconds, num_wrong] = measured;
        const std::vector<int>&own = nodes[node].ranks, &others = nodes[partner].ranks;
        std::vector<double>& rails = speeds.rails[node];
        rails.resize(own.size());
        double rate = 0;
        int64_t wrong = 0;
        for (size_t i = 0; i < std::min(own.size(), others.size()); ++i) {
            const double rail =
                static_cast<double>(kind.bytes) / std::max(seconds[own[i]], seconds[others[i]]);
            rails[i] = std::max(rails[i], rail);
            rate += rail;
            wrong += num_wrong[own[i]] + num_wrong[others[i]];
        }
        speeds.nodes[node] = std::max(speeds.nodes[node], rate);
        if (wrong > 0 && node < partner) speeds.wrong_pairs.push_back({node, partner, wrong});
    }

    const mpi::Comm& world_;
    const bench::ControlChannel& control_;
    const SpeedOptions& options_;
    bench::BackendChoice choice_;
    std::map<Groups, std::unique_ptr<bench::Backend>> backends_;
};

using comm::OpKind;

/// The benchmark's collective for an operation. A pipeline's sends are measured as a ring exchange.
const char* collective_of(OpKind kind) {
    switch (kind) {
        case OpKind::AllGather:
            return "all_gather";
        case OpKind::ReduceScatter:
            return "reduce_scatter";
        case OpKind::AllReduce:
            return "all_reduce";
        case OpKind::Broadcast:
            return "broadcast";
        case OpKind::Send:
        case OpKind::Receive:
            return "sendrecv";
    }
    throw RunError("internal error: unknown kind of operation");
}

size_t launch_bytes(const StepLaunches& one) {
    return static_cast<size_t>(one.elements) * size_bytes(one.type);
}

size_t step_bytes(const StepLaunches& one) {
    return launch_bytes(one) * static_cast<size_t>(one.num_launches);
}

bool same_kind(const StepLaunches& left, const StepLaunches& right) {
    return left.axes == right.axes && left.parts == right.parts && left.kind == right.kind;
}

/// The axes of a group, by its name (comm::Mesh::group).
layout::AxisSet axes_named(const std::string& name, const layout::MeshShape& mesh) {
    for (int bits = 1; bits < 1 << layout::kNumAxes; ++bits) {
        layout::AxisSet axes;
        for (int axis = 0; axis < layout::kNumAxes; ++axis) {
            if (bits >> axis & 1) axes.add(static_cast<layout::Axis>(axis));
        }
        if (mesh.used(axes) == axes && axes.name() == name) return axes;
    }
    throw RunError("internal error: no axes are called {}", name);
}

std::vector<std::vector<int>> groups_of(const StepLaunches& one, const layout::MeshShape& mesh) {
    std::set<std::vector<int>> groups;
    for (int rank = 0; rank < mesh.num_ranks(); ++rank) groups.insert(mesh.group(rank, one.axes, one.parts));
    return {groups.begin(), groups.end()};
}

}  // namespace

Speeds measure_speeds(const mpi::Comm& world, const bench::ControlChannel& control,
                      const std::vector<Node>& nodes, const std::vector<StepOperation>& operations,
                      const SpeedOptions& options) {
    Meter meter(world, control, options);
    Speeds speeds;
    speeds.library = meter.choice().library;
    speeds.between_devices = !meter.choice().devices.empty();
    speeds.devices = meter.choice().devices;
    speeds.device = meter.device();
    speeds.products = meter.products();
    for (const StepOperation& operation : operations) {
        speeds.operations.push_back(meter.operation(operation));
    }
    meter.pairs_of_nodes(nodes, speeds);
    return speeds;
}

void add_launch(std::vector<StepLaunches>& step, std::span<const comm::RecordedOp> launch,
                const layout::MeshShape& mesh) {
    const auto first =
        std::ranges::find_if(launch, [](const comm::RecordedOp& op) { return op.kind != OpKind::Receive; });
    if (first == launch.end() || first->group == "world" || first->size == 1) return;
    StepLaunches one{
        .axes = axes_named(first->group, mesh), .kind = first->kind, .type = first->type, .elements = 0};
    const bool is_message = one.kind == OpKind::Send;  // perhaps in a group of only two ranks
    if (!is_message) one.parts = mesh.degree(one.axes) / first->size;
    int64_t bytes = 0;  // the operations of a launch may have several types
    for (const comm::RecordedOp& op : launch) {
        if (op.kind == one.kind) bytes += op.num_bytes();
    }
    one.elements = bytes / size_bytes(one.type);
    if (one.elements == 0) return;
    const auto known = std::ranges::find_if(step, [&](const StepLaunches& other) {
        return same_kind(one, other) && one.type == other.type && one.elements == other.elements;
    });
    if (known == step.end()) {
        step.push_back(one);
    } else {
        ++known->num_launches;
    }
}

std::vector<StepOperation> step_operations(std::span<const StepLaunches> step, const layout::MeshShape& mesh,
                                           size_t max_bytes) {
    std::vector<StepLaunches> heaviest;
    for (const StepLaunches& one : step) {
        const auto known =
            std::ranges::find_if(heaviest, [&](const auto& other) { return same_kind(one, other); });
        if (known == heaviest.end()) {
            heaviest.push_back(one);
        } else if (step_bytes(one) > step_bytes(*known)) {
            *known = one;
        }
    }
    std::vector<StepOperation> operations;
    for (const StepLaunches& one : heaviest) {
        StepOperation operation{mesh.used(one.axes).name(), groups_of(one, mesh), {}, launch_bytes(one)};
        const bench::Case kind{.collective = &bench::collective_named(collective_of(one.kind)),
                               .type = one.type,
                               .reduction = one.kind == OpKind::AllReduce || one.kind == OpKind::ReduceScatter
                                                ? bench::Reduction::Sum
                                                : bench::Reduction::None};
        const auto measured = bench::case_of(kind, std::min(operation.launch_bytes, max_bytes),
                                             static_cast<int>(operation.groups.front().size()));
        if (!measured) continue;  // less than one element per rank
        operation.kind = *measured;
        operations.push_back(std::move(operation));
    }
    return operations;
}

}  // namespace argosy::preflight

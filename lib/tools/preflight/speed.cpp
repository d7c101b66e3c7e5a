#include "preflight/speed.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "bench/collective.h"
#include "comm/communicator.h"
#include "preflight/finding.h"

namespace argosy::preflight {
namespace {

constexpr int kRoundsOfPairs = 3;

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

/// COLLECTIVE: adds a round of pairs, and updates the speeds of nodes and rails.
void measure_pairs(Meter& meter, const Round& round, Speeds& speeds) {
    for (PairSpeed& pair : meter.pairs(round)) {
        for (const int node : {pair.first, pair.second}) {
            speeds.nodes[node] = std::max(speeds.nodes[node], pair.rate());
            std::vector<double>& rails = speeds.rails[node];
            for (size_t i = 0; i < std::min(rails.size(), pair.rails.size()); ++i)
                rails[i] = std::max(rails[i], pair.rails[i]);
        }
        speeds.pairs.push_back(std::move(pair));
    }
}

/// The measurements in order, up to the deadline.
class Steps {
  public:
    Steps(Meter& meter, double deadline_seconds, std::vector<std::string>& not_done)
        : meter_(meter), deadline_seconds_(deadline_seconds), not_done_(not_done) {}

    /// COLLECTIVE: whether the step may begin. If not, notes it.
    bool begin(std::string step) {
        if (meter_.seconds_passed() < deadline_seconds_) return true;
        not_done_.push_back(std::move(step));
        return false;
    }

  private:
    Meter& meter_;
    double deadline_seconds_;
    std::vector<std::string>& not_done_;
};

/// COLLECTIVE: rounds in which every node has another partner, then the hunt for bad nodes and slow paths.
/// Returns false if the deadline cut it short.
bool measure_nodes(Meter& meter, const std::vector<Node>& nodes, Steps& steps, Speeds& speeds) {
    const auto num_nodes = static_cast<int>(nodes.size());
    for (const Round& round : rounds_of_pairs(num_nodes, kRoundsOfPairs)) {
        if (!steps.begin(kCheckNames.pairs_of_nodes)) return false;
        if (speeds.nodes.empty()) {
            speeds.nodes.resize(nodes.size());
            for (const Node& node : nodes) speeds.rails.emplace_back(node.ranks.size());
        }
        measure_pairs(meter, round, speeds);
    }
    speeds.num_pairs_before_hunt = speeds.pairs.size();
    for (int num_left = max_hunt_rounds(num_nodes); num_left > 0; --num_left) {
        const PairStates states(speeds.pairs, speeds.num_pairs_before_hunt, num_nodes);
        const auto round = states.next_round(num_left);
        if (!round) return true;
        if (!steps.begin("the hunt for bad nodes and slow paths")) return false;
        measure_pairs(meter, *round, speeds);
    }
    return true;
}

}  // namespace

Speeds measure_speeds(Meter& meter, const std::vector<Node>& nodes,
                      const std::vector<StepOperation>& operations, double deadline_seconds) {
    Speeds speeds;
    Steps steps(meter, deadline_seconds, speeds.not_done);
    speeds.library = meter.library();
    speeds.devices = meter.devices();
    if (steps.begin(kCheckNames.matrix_products)) speeds.products = meter.products();
    for (const StepOperation& operation : operations) {
        if (steps.begin(operation.name())) speeds.operations.push_back(meter.operation(operation));
    }
    speeds.pairs_cut_short = !measure_nodes(meter, nodes, steps, speeds);
    return speeds;
}

double SpeedOptions::gpu_seconds() const { return std::min(Sources().gpu_seconds, timeout_seconds / 2); }

std::string StepOperation::name() const { return fmt::format("{} over {}", kind.collective->name, axes); }

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
        bench::Case kind{.collective = &bench::collective_named(collective_of(one.kind)), .type = one.type};
        if (kind.collective->reduces) kind.reduction = Reduction::Sum;
        const auto measured = bench::case_of(kind, std::min(operation.launch_bytes, max_bytes),
                                             static_cast<int>(operation.groups.front().size()));
        if (!measured) continue;  // less than one element per rank
        operation.kind = *measured;
        operations.push_back(std::move(operation));
    }
    return operations;
}

}  // namespace argosy::preflight

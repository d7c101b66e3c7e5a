#include "preflight/speed.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "bench/collective.h"
#include "comm/communicator.h"
#include "preflight/diagnose.h"

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
        case OpKind::AllToAll:
            return "alltoall";
        case OpKind::Send:
        case OpKind::Receive:
            return "sendrecv";
    }
    throw RunError("internal error: unknown kind of operation");
}

/// The benchmark's size of an operation. The benchmark has equal parts, so an all-to-all counts with the mean
/// of the ranks' buffers.
int64_t size_of(const comm::RecordedOp& op) {
    return op.kind == OpKind::AllToAll ? op.num_bytes() / op.size : op.num_bytes();
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
    for (int bits = 1; bits < 1 << layout::kAxisParts.size(); ++bits) {
        layout::AxisSet axes;
        for (size_t part = 0; part < layout::kAxisParts.size(); ++part) {
            if (bits >> part & 1) axes.add(layout::kAxisParts[part]);
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

/// COLLECTIVE: adds a round of pairs, and updates the speeds of rails and nodes.
void measure_pairs(Meter& meter, const Round& round, Speeds& speeds) {
    for (PairSpeed& pair : meter.pairs(round)) {
        for (const int node : {pair.first, pair.second}) {
            std::vector<double>& rails = speeds.rails[node];
            for (size_t i = 0; i < std::min(rails.size(), pair.rails.size()); ++i)
                rails[i] = std::max(rails[i], pair.rails[i]);
            speeds.nodes[node] = std::accumulate(rails.begin(), rails.end(), 0.0);
        }
        speeds.pairs.push_back(std::move(pair));
    }
}

/// COLLECTIVE: whether the step with a name may begin before the deadline. If not, notes it.
using MayBegin = std::function<bool(std::string step)>;

/// By node, as speed.h describes. Nodes without a partner count as good.
std::vector<char> good_nodes(const std::vector<PairSpeed>& pairs, size_t num_nodes) {
    std::vector<char> good(num_nodes, 1);
    size_t num_places = 0;
    for (const PairSpeed& pair : pairs) num_places = std::max(num_places, pair.rails.size());
    for (size_t place = 0; place < num_places; ++place) {
        std::map<int, double> best;  // by node; 0: no exchange with right data
        for (const PairSpeed& pair : pairs) {
            if (place >= pair.rails.size()) continue;
            for (const int node : {pair.first, pair.second})
                best[node] = std::max(best[node], pair.num_wrong > 0 ? 0 : pair.rails[place]);
        }
        std::vector<double> rates;
        for (const auto& [node, rate] : best)
            if (rate > 0) rates.push_back(rate);
        std::ranges::sort(rates);
        const double min_rate = rates.empty() ? 0 : kMinShareOfPeers * rates[rates.size() * 3 / 4];
        for (const auto& [node, rate] : best) good[node] &= rate > 0 && rate >= min_rate;
    }
    return good;
}

/// The nearest good node that is free in `round` after `num_to_skip` nearer ones, or the last of fewer.
std::optional<int> partner_for(int node, int num_to_skip, const std::vector<char>& good, const Round& round) {
    const auto num_nodes = static_cast<int>(round.size());
    std::optional<int> partner;
    for (int distance = 1; distance < num_nodes; ++distance) {
        for (const int other : {node - distance, node + distance}) {
            if (other < 0 || other >= num_nodes || !good[other] || round[other] != other) continue;
            partner = other;
            if (num_to_skip-- == 0) return partner;
        }
    }
    return partner;
}

/// The next round of the hunt; none if nothing is left to find out. Gives partners to the nodes with the
/// fewest tries: to so many that all tries fit into `num_left` rounds, or to a share of the job's nodes if
/// that is more. Spreads the choice over the whole list, because neighbours share a switch.
std::optional<Round> next_round(const std::vector<char>& good, int num_left, std::vector<int>& num_tries) {
    constexpr int kNodesPerPair[] = {16, 64};  // by tries: fewer would load tapered links between switches
    constexpr int kMaxTries = std::size(kNodesPerPair);
    std::vector<int> waiting;
    int fewest = kMaxTries, num_wanted = 0;
    for (int node = 0; node < std::ssize(good); ++node) {
        if (good[node] || num_tries[node] >= kMaxTries) continue;
        num_wanted += kMaxTries - num_tries[node];
        if (num_tries[node] < fewest) waiting.clear();
        fewest = std::min(fewest, num_tries[node]);
        if (num_tries[node] == fewest) waiting.push_back(node);
    }
    if (waiting.empty()) return std::nullopt;
    const auto num_waiting = std::ssize(waiting);
    const auto num_pairs = std::min(num_waiting, std::max(std::ssize(good) / kNodesPerPair[fewest],
                                                          ptrdiff_t{(num_wanted + num_left - 1) / num_left}));
    Round round(good.size());
    std::iota(round.begin(), round.end(), 0);
    bool any = false;
    for (ptrdiff_t i = 0; i < num_pairs; ++i) {
        const int node = waiting[i * num_waiting / num_pairs];
        const auto partner = partner_for(node, num_tries[node], good, round);
        if (!partner) continue;
        round[node] = *partner, round[*partner] = node;
        ++num_tries[node];
        any = true;
    }
    return any ? std::optional(round) : std::nullopt;
}

/// COLLECTIVE: rounds in which every node has another partner, then the hunt for bad nodes. Returns false if
/// the deadline cut it short.
bool measure_nodes(Meter& meter, const std::vector<Node>& nodes, const MayBegin& may_begin, Speeds& speeds) {
    const auto num_nodes = static_cast<int>(nodes.size());
    for (const Round& round : rounds_of_pairs(num_nodes, kRoundsOfPairs)) {
        if (!may_begin(kCheckNames.pairs_of_nodes)) return false;
        if (speeds.nodes.empty()) {
            speeds.nodes.resize(nodes.size());
            for (const Node& node : nodes) speeds.rails.emplace_back(node.ranks.size());
        }
        measure_pairs(meter, round, speeds);
    }
    speeds.num_pairs_before_hunt = speeds.pairs.size();
    std::vector<int> num_tries(nodes.size());
    const int max_rounds = 3 * static_cast<int>(std::bit_width(nodes.size())) - 2;
    for (int num_left = max_rounds; num_left > 0; --num_left) {
        const auto round = next_round(good_nodes(speeds.pairs, nodes.size()), num_left, num_tries);
        if (!round) return true;
        if (!may_begin("the hunt for bad nodes")) return false;
        measure_pairs(meter, *round, speeds);
    }
    return true;
}

}  // namespace

Speeds measure_speeds(Meter& meter, const std::vector<Node>& nodes,
                      const std::vector<StepOperation>& operations, double deadline_seconds) {
    Speeds speeds;
    const MayBegin may_begin = [&](std::string step) {
        if (meter.seconds_passed() < deadline_seconds) return true;
        speeds.not_done.push_back(std::move(step));
        return false;
    };
    speeds.library = meter.library();
    speeds.devices = meter.devices();
    if (may_begin(kCheckNames.matrix_products)) speeds.products = meter.products();
    for (const StepOperation& operation : operations) {
        if (may_begin(operation.name())) speeds.operations.push_back(meter.operation(operation));
    }
    speeds.pairs_cut_short = !measure_nodes(meter, nodes, may_begin, speeds);
    return speeds;
}

/// The circle method for round-robin schedules: the nodes stand in a circle, opposite nodes are partners, and
/// from round to round all nodes but one move on by one position. If the number of nodes is odd, one position
/// is empty, and the node opposite is alone. At first, nodes 0, 2, 4, ... stand opposite nodes 1, 3, 5, ...
std::vector<Round> rounds_of_pairs(int num_nodes, int max_rounds) {
    if (num_nodes < 2) return {};
    const int places = num_nodes + num_nodes % 2, num_rounds = places - 1;
    const int wanted = std::min(max_rounds, num_rounds);
    std::vector<Round> rounds;
    for (int i = 0; i < wanted; ++i) {
        const int turn = i * num_rounds / wanted;
        const auto at = [&](int place) {
            const int first = place == 0 ? 0 : 1 + (place - 1 + turn) % num_rounds;
            return first < places / 2 ? 2 * first : 2 * (places - 1 - first) + 1;
        };
        Round partners(places);
        for (int place = 0; place < places / 2; ++place) {
            const int left = at(place), right = at(places - 1 - place);
            partners[left] = right;
            partners[right] = left;
        }
        if (num_nodes % 2 == 1) partners[partners[num_nodes]] = partners[num_nodes];
        partners.resize(num_nodes);
        rounds.push_back(std::move(partners));
    }
    return rounds;
}

double PairSpeed::rate() const { return std::accumulate(rails.begin(), rails.end(), 0.0); }

double SpeedOptions::gpu_seconds() const { return std::min(Sources().gpu_seconds, timeout_seconds / 2); }

std::string StepOperation::name() const { return fmt::format("{} over {}", kind.collective->name, axes); }

double StepOperation::bus_bytes() const {
    const auto num_ranks = static_cast<int>(groups.front().size());
    return static_cast<double>(kind.bytes) * kind.collective->bus_factor(num_ranks);
}

size_t OperationSpeed::furthest_below_plan() const {
    size_t slowest = 0;
    for (size_t i = 1; i < planned.size(); ++i) {
        if (share_of_plan(i) < share_of_plan(slowest)) slowest = i;
    }
    return slowest;
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
        if (op.kind == one.kind) bytes += size_of(op);
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
        StepOperation operation{
            mesh.used(one.axes).name(), groups_of(one, mesh), {}, launch_bytes(one), one.kind};
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

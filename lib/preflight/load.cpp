#include "preflight/load.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "bench/collective.h"
#include "comm/communicator.h"

namespace argosy::preflight {
namespace {

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

size_t launch_bytes(const parallel::Traffic& one) {
    return static_cast<size_t>(one.elements) * size_bytes(comm::element_type(one.type));
}

size_t step_bytes(const parallel::Traffic& one) {
    return launch_bytes(one) * static_cast<size_t>(one.num_launches);
}

bool same_kind(const parallel::Traffic& left, const parallel::Traffic& right) {
    return left.axes == right.axes && left.parts == right.parts && left.kind == right.kind;
}

std::vector<std::vector<int>> groups_of(const parallel::Traffic& one, const layout::MeshShape& mesh) {
    std::set<std::vector<int>> groups;
    for (int rank = 0; rank < mesh.num_ranks(); ++rank) groups.insert(mesh.group(rank, one.axes, one.parts));
    return {groups.begin(), groups.end()};
}

}  // namespace

std::vector<Load> loads_of(std::span<const parallel::Traffic> traffic, const layout::MeshShape& mesh,
                           size_t most_bytes) {
    std::vector<parallel::Traffic> heaviest;
    for (const parallel::Traffic& one : traffic) {
        const auto known =
            std::ranges::find_if(heaviest, [&](const auto& other) { return same_kind(one, other); });
        if (known == heaviest.end()) {
            heaviest.push_back(one);
        } else if (step_bytes(one) > step_bytes(*known)) {
            *known = one;
        }
    }
    std::vector<Load> loads;
    for (const parallel::Traffic& one : heaviest) {
        Load load{mesh.used(one.axes).name(), groups_of(one, mesh), {}, launch_bytes(one)};
        const bench::Case kind{.collective = &bench::collective_named(collective_of(one.kind)),
                               .type = comm::element_type(one.type),
                               .operation = one.kind == OpKind::AllReduce || one.kind == OpKind::ReduceScatter
                                                ? bench::Operation::Sum
                                                : bench::Operation::None};
        const auto measured = bench::case_of(kind, std::min(load.step_bytes, most_bytes),
                                             static_cast<int>(load.groups.front().size()));
        if (!measured) continue;  // less than one element per rank
        load.kind = *measured;
        loads.push_back(std::move(load));
    }
    return loads;
}

}  // namespace argosy::preflight

#include "bench/collective.h"

#include "base/error.h"

namespace argosy::bench {
namespace {

using Data = std::optional<Part>;

Chunks one_chunk(int /*num_ranks*/) { return {1, 1}; }
Chunks one_in_all_out(int num_ranks) { return {1, num_ranks}; }
Chunks all_in_one_out(int num_ranks) { return {num_ranks, 1}; }
Chunks all_chunks(int num_ranks) { return {num_ranks, num_ranks}; }

Chunks at_start(const GroupPosition& /*position*/) { return {0, 0}; }
Chunks input_at_own_chunk(const GroupPosition& position) { return {position.rank, 0}; }
Chunks reduced_chunk(const GroupPosition& position) {
    return {0, position.result_at_start ? 0 : position.rank};
}

/// Each rank gives its own chunks.
Data own_input(const GroupPosition& position, int chunk) { return Part::of_rank(position.rank, chunk); }
/// Only the root gives chunks.
Data input_of_root(const GroupPosition& position, int chunk) {
    if (position.rank != position.root) return std::nullopt;
    return Part::of_rank(position.root, chunk);
}

double whole_size(int /*num_ranks*/) { return 1; }
/// The share of the size that comes from, or goes to, other ranks.
double size_of_others(int num_ranks) { return (num_ranks - 1.0) / num_ranks; }

const Collective kCollectives[] = {
    // Every rank gets the reduction of all inputs.
    {
        .name = "all_reduce",
        .reduces = true,
        .rooted = false,
        .chunks = one_chunk,
        .in_place = at_start,
        .input = own_input,
        .expected = [](const GroupPosition&, int) -> Data { return Part::reduced(0); },
        .run = [](Backend& backend, const Call& call) { backend.all_reduce(call); },
        // A rank sends every element twice, once for the sum and once as a result, except its own 1/n.
        .bus_factor = [](int num_ranks) { return 2.0 * (num_ranks - 1) / num_ranks; },
    },
    // Every rank gets the inputs of all ranks, in the order of the ranks.
    {
        .name = "all_gather",
        .reduces = false,
        .rooted = false,
        .chunks = one_in_all_out,
        .in_place = input_at_own_chunk,
        .input = own_input,
        .expected = [](const GroupPosition&, int chunk) -> Data { return Part::of_rank(chunk, 0); },
        .run = [](Backend& backend, const Call& call) { backend.all_gather(call); },
        .bus_factor = size_of_others,
    },
    // Rank r gets chunk r of the reduction of all inputs.
    {
        .name = "reduce_scatter",
        .reduces = true,
        .rooted = false,
        .chunks = all_in_one_out,
        .in_place = reduced_chunk,
        .input = own_input,
        .expected = [](const GroupPosition& position, int) -> Data { return Part::reduced(position.rank); },
        .run = [](Backend& backend, const Call& call) { backend.reduce_scatter(call); },
        .bus_factor = size_of_others,
    },
    // Every rank except the root gets the input of the root.
    {
        .name = "broadcast",
        .reduces = false,
        .rooted = true,
        .chunks = one_chunk,
        .in_place = at_start,
        .input = input_of_root,
        .expected = [](const GroupPosition& position, int) -> Data {
            if (position.rank == position.root) return std::nullopt;
            return Part::of_rank(position.root, 0);
        },
        .run = [](Backend& backend, const Call& call) { backend.broadcast(call); },
        .bus_factor = whole_size,
    },
    // Rank r gets chunk r of every rank, in the order of the ranks.
    {
        .name = "alltoall",
        .reduces = false,
        .rooted = false,
        .chunks = all_chunks,
        .in_place = at_start,
        .input = own_input,
        .expected = [](const GroupPosition& position, int chunk) -> Data {
            return Part::of_rank(chunk, position.rank);
        },
        .run = [](Backend& backend, const Call& call) { backend.all_to_all(call); },
        .bus_factor = size_of_others,
    },
    // Ring exchange: every rank receives the input of the rank before it.
    {
        .name = "sendrecv",
        .reduces = false,
        .rooted = false,
        .chunks = one_chunk,
        .in_place = at_start,
        .input = own_input,
        .expected = [](const GroupPosition& position, int) -> Data {
            return Part::of_rank((position.rank + position.size - 1) % position.size, 0);
        },
        .run = [](Backend& backend, const Call& call) { backend.send_receive(call); },
        .bus_factor = whole_size,
    },
};

}  // namespace

std::span<const Collective> collectives() { return kCollectives; }

std::string collective_names() {
    std::string names;
    for (const Collective& one : collectives()) names += (names.empty() ? "" : ", ") + std::string(one.name);
    return names;
}

const Collective& collective_named(const std::string& name) {
    for (const Collective& one : collectives()) {
        if (name == one.name) return one;
    }
    throw UserError("no collective is called '{}'; there are {}", name, collective_names());
}

}  // namespace argosy::bench

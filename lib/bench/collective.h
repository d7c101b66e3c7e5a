// What a collective is to the benchmark: a row of functions, one file each. The engine (measure.h) knows no
// collective by name, and a row knows nothing of time.
//
// A rank's input and output are whole chunks, each of the same number of elements: one, or one for each rank.
// The numbers are those of chunks.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "bench/backend.h"
#include "bench/pattern.h"

namespace argosy::bench {

/// A rank's place in the group that runs a collective.
struct Place {
    int rank;
    int size;
    int root;
    /// Where a reduce_scatter in place leaves its result: at the buffer's start (MPI), else at the rank's own
    /// chunk (NCCL).
    bool result_at_start;
};

struct Chunks {
    int input, output;
};

struct Collective {
    const char* name;
    bool reduces;
    bool rooted;

    /// Of a rank's buffers, for that many ranks.
    Chunks (*chunks)(int num_ranks);

    /// Where input and output begin in the one buffer of an operation in place.
    Chunks (*in_place)(const Place&);

    /// What a chunk of the input holds, and what one of the output must hold in the end; none where this rank
    /// gives, or gets, nothing.
    std::optional<Part> (*input)(const Place&, int chunk);
    std::optional<Part> (*expected)(const Place&, int chunk);

    /// Starts it.
    void (*run)(Backend&, const Call&);

    /// Bus bandwidth over algorithm bandwidth: the share of the size that the busiest link of a rank carries
    /// under the best algorithm.
    double (*bus_factor)(int num_ranks);
};

/// What rows share: one chunk in and one out; both at the buffer's start; a chunk of the rank's own, or of
/// the root's, which gives all there is; a bus that carries all of the size, or all but a rank's own part of
/// it.
Chunks one_chunk(int num_ranks);
Chunks at_start(const Place& place);
std::optional<Part> own_input(const Place& place, int chunk);
std::optional<Part> input_of_root(const Place& place, int chunk);
double whole_size(int num_ranks);
double size_of_others(int num_ranks);

std::span<const Collective> collectives();

/// Throws UserError with the names that there are.
const Collective& collective_named(const std::string& name);

/// Makers of the rows, each in the file of its name.
Collective all_gather();
Collective all_reduce();
Collective all_to_all();
Collective broadcast();
Collective gather();
Collective reduce();
Collective reduce_scatter();
Collective scatter();
Collective send_receive();

}  // namespace argosy::bench

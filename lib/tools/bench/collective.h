// The table of the collectives that the benchmark measures. A collective is a row of functions
// (`Collective`). The measurement (measure.h) knows no collective by name, and a row contains no timing.
//
// A rank's input and output consist of one chunk, or of one chunk per rank. All chunks have the same number
// of elements. Counts and offsets in a row are in chunks.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "bench/backend.h"
#include "bench/element.h"

namespace argosy::bench {

/// A rank's position in the group that runs a collective.
struct GroupPosition {
    int rank;
    int size;
    int root;
    /// The destination of the result of a reduce_scatter in place. True: the start of the buffer (MPI).
    /// False: the rank's own chunk of the buffer (NCCL).
    bool result_at_start;
};

struct Chunks {
    int input, output;
};

struct Collective {
    const char* name;
    bool reduces;
    bool rooted;

    /// The number of chunks in a rank's input and output.
    Chunks (*chunks)(int num_ranks);

    /// The offsets of input and output if an operation runs in place, in one buffer.
    Chunks (*in_place)(const GroupPosition&);

    /// The data that an input chunk holds, and the data that an output chunk must hold at the end. None: this
    /// rank has no input, or no output.
    std::optional<Part> (*input)(const GroupPosition&, int chunk);
    std::optional<Part> (*expected)(const GroupPosition&, int chunk);

    /// Starts the operation on the backend; see Backend for when it ends.
    void (*run)(Backend&, const Call&);

    /// Bus bandwidth divided by algorithm bandwidth: the bytes that a rank's busiest link carries under the
    /// best algorithm, divided by the size.
    double (*bus_factor)(int num_ranks);
};

std::span<const Collective> collectives();

/// The names of all collectives, separated by commas.
std::string collective_names();

/// Throws UserError, which lists the known names, if there is no such collective.
const Collective& collective_named(const std::string& name);

}  // namespace argosy::bench

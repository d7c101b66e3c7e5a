// Splits a collective into rounds for Exchange, and defines the content of the blocks. In each round, every
// rank publishes one block, and reads the blocks of the others once all have arrived.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace argosy::comm {

/// Says which parts of a buffer are published and read. The buffer is cut into one piece per rank, or taken
/// whole.
enum class Pattern {
    AllGather,      // each rank publishes its piece and takes all pieces
    ReduceScatter,  // each rank publishes all pieces and reduces its piece
    AllReduce,      // each rank publishes the whole buffer and reduces all of it
    Broadcast,      // the root publishes the whole buffer
};

struct Transfer {
    Pattern pattern;
    const std::byte* in = nullptr;  // AllGather: this rank's piece; else all of the buffer
    std::byte* out = nullptr;       // ReduceScatter: this rank's piece; else all of the buffer
    int64_t total_bytes = 0;        // of the buffer
    int64_t piece_bytes = 0;        // of a rank's piece; the last pieces may be shorter or empty
    int64_t chunk_bytes = 0;        // bytes of a piece, or of the whole, in one round
    at::ScalarType type = at::kByte;
    Reduction reduction = Reduction::Sum;
    int root = -1;

    /// Equal on all ranks that take part in the same transfer. Blocks of another transfer are never read:
    /// their sizes may differ.
    uint64_t signature = 0;
    bool needs_previous = false;  // its input is the output of the transfer before it
    int64_t first_round = 0;

    int64_t num_rounds() const;
    int64_t end_round() const { return first_round + num_rounds(); }
};

/// This rank and the group, as transfers need them.
struct Party {
    int rank, size;
    int64_t max_block_bytes;
};

/// Returns the transfers that make up a collective, all of them with first_round 0. Throws RunError for a
/// type that cannot be reduced.
std::vector<Transfer> transfers(const Op& op, const Party& party);

int64_t block_bytes(const Transfer& transfer, const Party& party);
/// Whether the rank publishes anything: in a broadcast only the root does.
bool publishes(const Transfer& transfer, int rank);
/// Writes this rank's block of a round.
void write_block(const Transfer& transfer, int64_t round, const Party& party, std::byte* block);
/// Reads all blocks of a round. Ignores blocks[party.rank] and the blocks of ranks that publish nothing.
void read_blocks(const Transfer& transfer, int64_t round, const Party& party,
                 std::span<const std::byte* const> blocks);

// Sums and maxima over the buffers of several ranks, in a fixed order.

/// out = sources[0] + sources[1] + ..., added in this order, so that every rank gets the same bits. Elements
/// of two bytes are summed in fp32 and rounded once, to nearest even. `out` may be one of the sources.
/// REQUIRES: can_reduce(type).
void reduce(std::byte* out, std::span<const std::byte* const> sources, int64_t bytes, at::ScalarType type,
            Reduction reduction);

bool can_reduce(at::ScalarType type);

}  // namespace argosy::comm

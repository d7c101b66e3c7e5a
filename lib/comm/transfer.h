// A collective as rounds: in each, every rank publishes one block, and reads those of the others once all are
// there. What is in a block, and what becomes of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace argosy::comm {

/// Who reads what of a buffer that is cut into a piece for each rank, or taken whole.
enum class Pattern {
    Gather,     // everyone publishes a piece, everyone takes all pieces
    Reduce,     // everyone publishes all pieces, everyone sums up its own
    ReduceAll,  // everyone publishes the whole, everyone sums it up
    Broadcast,  // the root publishes the whole
};

struct Transfer {
    Pattern pattern;
    const std::byte* in = nullptr;  // Gather: this rank's piece; else all of the buffer
    std::byte* out = nullptr;       // Reduce: this rank's piece; else all of the buffer
    int64_t total_bytes = 0;        // of the buffer
    int64_t piece_bytes = 0;        // of a rank's piece; the last ones may be shorter or empty
    int64_t chunk_bytes = 0;        // of a piece, or of the whole, that one round takes
    at::ScalarType type = at::kByte;
    Reduction reduction = Reduction::Sum;
    int root = -1;

    bool needs_previous = false;  // its input is what a transfer before it leaves
    int64_t first_round = 0;

    int64_t num_rounds() const;
    int64_t end_round() const { return first_round + num_rounds(); }
};

/// What the ranks of a group have in common for a transfer.
struct Party {
    int rank, size;
    int64_t most_block_bytes;
};

/// The transfers that make up a collective, all of them with first_round 0. Throws RunError for sums that
/// cannot be.
std::vector<Transfer> transfers(const Op& op, const Party& party);

int64_t block_bytes(const Transfer& transfer, const Party& party);
/// Whether the rank publishes anything: of a broadcast only the root does.
bool publishes(const Transfer& transfer, int rank);
/// Writes this rank's block of a round.
void write_block(const Transfer& transfer, int64_t round, const Party& party, std::byte* block);
/// Reads all blocks of a round; blocks[party.rank] and those of ranks that publish nothing are not looked at.
void read_blocks(const Transfer& transfer, int64_t round, const Party& party,
                 std::span<const std::byte* const> blocks);

}  // namespace argosy::comm

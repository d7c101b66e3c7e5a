// The values that a benchmark sends, chosen so that every result is known bit for bit, whatever the order in
// which a library adds up and in each type.
//
// A rank's contribution is a long vector of elements, cut into chunks. What is only moved is any bits, which
// differ between ranks and places. What is reduced are whole numbers, or powers of two, of which at most so
// many ranks give one that no partial result is too large to be exact; who gives, and which rank has the
// largest, changes from element to element.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "bench/element.h"

namespace argosy::bench {

/// A chunk of one rank's contribution, or of the reduction of all.
struct Part {
    int rank;
    int chunk;

    static constexpr int kReduced = -1;
    static Part of_rank(int rank, int chunk) { return {rank, chunk}; }
    static Part reduced(int chunk) { return {kReduced, chunk}; }
};

class Pattern {
  public:
    Pattern(ElementType type, Operation operation, int num_ranks);

    ElementType type() const { return type_; }

    /// Fills `to` with the elements of a part, from its `first` one on; a chunk has `chunk_elements`.
    void fill(const Part& part, size_t chunk_elements, size_t first, std::span<std::byte> to) const;

  private:
    // Elements repeat after a prime number of them, which no size of a chunk or a library's buffer divides.
    static constexpr size_t kPeriod = 509;

    double value(int rank, size_t index) const;
    double reduction(size_t index) const;
    uint64_t bits(int rank, size_t index) const;
    const std::vector<std::byte>& period_of(int rank) const;

    ElementType type_;
    Operation operation_;
    int num_ranks_;
    mutable std::vector<std::vector<std::byte>> periods_;  // by rank, the reduction last; made when asked for
};

}  // namespace argosy::bench

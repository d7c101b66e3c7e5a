// The elements that a benchmark sends: their types and reductions, under nccl-tests' names, and their values.
// Every result is known bit for bit, in each type and for any order in which a library sums.
//
// A rank's contribution is a long vector of elements, cut into chunks. Without a reduction the elements are
// random bits, which differ between ranks and indices. The inputs of sums and maxima are integers. In sums
// only so many ranks contribute more than zero that every partial result is exact. These ranks, and the rank
// with the largest value, change from element to element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/element_type.h"

namespace argosy::bench {

const char* name(ElementType type);                    // "bfloat16"
const char* name(std::optional<Reduction> reduction);  // "none" of a collective that reduces nothing

/// The type or operation of this name, or all of them for "all". Throws UserError, which lists the known
/// names, for any other name.
std::vector<ElementType> types_named(const std::string& name);
std::vector<Reduction> reductions_named(const std::string& name);

/// One chunk of one rank's contribution, or of the reduction over all ranks.
struct Part {
    int rank;
    int chunk;

    static constexpr int kReduced = -1;
    static Part of_rank(int rank, int chunk) { return {rank, chunk}; }
    static Part reduced(int chunk) { return {kReduced, chunk}; }
};

class Pattern {
  public:
    /// `reduction`: none if the collective reduces nothing.
    Pattern(ElementType type, std::optional<Reduction> reduction, int num_ranks);

    ElementType type() const { return type_; }

    /// Fills `to` with the part's elements from index `first` on. Each chunk has `chunk_elements` elements.
    void fill(const Part& part, size_t chunk_elements, size_t first, std::span<std::byte> to) const;

  private:
    // The elements repeat with this period. The period is prime, so that neither a chunk nor a buffer of a
    // library is a whole number of periods.
    static constexpr size_t kPeriod = 509;

    double value(int rank, size_t index) const;
    double reduced_value(size_t index) const;
    uint64_t bits(int rank, size_t index) const;
    const std::vector<std::byte>& period_of(int rank) const;

    ElementType type_;
    std::optional<Reduction> reduction_;
    int num_ranks_;
    mutable std::vector<std::vector<std::byte>> periods_;  // by rank, then the reduction's; made on first use
};

}  // namespace argosy::bench

#include "bench/pattern.h"

#include <algorithm>
#include <cstring>

#include "base/random.h"

namespace argosy::bench {
namespace {

uint32_t mixed(size_t index, int rank) {
    return philox({static_cast<uint32_t>(index), static_cast<uint32_t>(rank), 0, 0}, {0, 0})[0];
}

}  // namespace

Pattern::Pattern(ElementType type, std::optional<Reduction> reduction, int num_ranks)
    : type_(type), reduction_(reduction), num_ranks_(num_ranks), periods_(num_ranks + 1) {}

/// A rank's value in a reduction. The rank's turn is (rank + index) modulo the number of ranks. In sums over
/// many ranks, only ranks with a small turn contribute; the others give zero.
double Pattern::value(int rank, size_t index) const {
    const int turn = static_cast<int>((static_cast<size_t>(rank) + index) % static_cast<size_t>(num_ranks_));
    const double sign = is_signed(type_) && mixed(index, -1) % 2 == 1 ? -1 : 1;
    const int exact = largest_exact(type_);
    if (reduction_ == Reduction::Max) return sign * std::min(turn + 1, exact);
    const int givers = std::min(num_ranks_, exact);
    if (turn >= givers) return 0;
    const auto largest = static_cast<uint32_t>(exact / givers);
    return sign * (1 + mixed(index, rank) % largest);
}

double Pattern::reduced_value(size_t index) const {
    double result = value(0, index);
    for (int rank = 1; rank < num_ranks_; ++rank) {
        const double more = value(rank, index);
        result = reduction_ == Reduction::Max ? std::max(result, more) : result + more;
    }
    return result;
}

uint64_t Pattern::bits(int rank, size_t index) const {
    if (rank == Part::kReduced) return bits_of(reduced_value(index), type_);
    if (reduction_) return bits_of(value(rank, index), type_);
    // Without a reduction: each byte differs from the same byte of all ranks with another `rank % 256`.
    constexpr uint64_t kOneInEachByte = 0x0101010101010101;
    const uint64_t place = static_cast<uint64_t>(mixed(index, 0)) << 32 | mixed(index, 1);
    return place ^ static_cast<uint64_t>(rank % 256) * kOneInEachByte;
}

const std::vector<std::byte>& Pattern::period_of(int rank) const {
    auto& period = periods_[rank == Part::kReduced ? num_ranks_ : rank];
    if (!period.empty()) return period;
    const size_t bytes = size_bytes(type_);
    period.resize(kPeriod * bytes);
    for (size_t index = 0; index < kPeriod; ++index) {
        const uint64_t element = bits(rank, index);
        std::memcpy(&period[index * bytes], &element, bytes);
    }
    return period;
}

void Pattern::fill(const Part& part, size_t chunk_elements, size_t first, std::span<std::byte> to) const {
    const auto& period = period_of(part.rank);
    const size_t start = static_cast<size_t>(part.chunk) * chunk_elements + first;
    size_t from = start % kPeriod * size_bytes(type_);
    while (!to.empty()) {
        const size_t bytes = std::min(to.size(), period.size() - from);
        std::memcpy(to.data(), &period[from], bytes);
        to = to.subspan(bytes);
        from = 0;
    }
}

}  // namespace argosy::bench

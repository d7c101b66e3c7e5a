#include "bench/element.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/error.h"
#include "base/random.h"

namespace argosy::bench {
namespace {

template <class Element>
uint64_t bits_of(double value) {
    const auto element = static_cast<Element>(value);
    uint64_t bits = 0;
    std::memcpy(&bits, &element, sizeof(element));
    return bits;
}

template <class Narrow>
uint64_t narrow_bits_of(double value) {
    return Narrow().rounded(static_cast<float>(value));
}

struct TypeRow {
    ElementType value;
    const char* name;
    bool is_signed;
    int exact;                 // the largest n <= 2^20 such that the type represents all integers up to n
    uint64_t (*bits)(double);  // of a number that is rounded to the type, in the lower bytes
};

// REQUIRES: the order of the enumeration, which indexes the table. No benchmark uses UInt16, the last type.
constexpr TypeRow kTypes[] = {
    {ElementType::Int8, "int8", true, 127, bits_of<int8_t>},
    {ElementType::UInt8, "uint8", false, 255, bits_of<uint8_t>},
    {ElementType::Int32, "int32", true, 1 << 20, bits_of<int32_t>},
    {ElementType::UInt32, "uint32", false, 1 << 20, bits_of<uint32_t>},
    {ElementType::Int64, "int64", true, 1 << 20, bits_of<int64_t>},
    {ElementType::UInt64, "uint64", false, 1 << 20, bits_of<uint64_t>},
    {ElementType::Float16, "half", true, 2048, narrow_bits_of<Float16>},
    {ElementType::Float32, "float", true, 1 << 20, bits_of<float>},
    {ElementType::Float64, "double", true, 1 << 20, bits_of<double>},
    {ElementType::BFloat16, "bfloat16", true, 256, narrow_bits_of<BFloat16>},
    {ElementType::Float8E4M3, "fp8_e4m3", true, 16, narrow_bits_of<Float8E4M3>},
    {ElementType::Float8E5M2, "fp8_e5m2", true, 8, narrow_bits_of<Float8E5M2>},
};

static_assert(std::size(kTypes) == static_cast<size_t>(ElementType::UInt16));  // which is not measured

struct ReductionRow {
    Reduction value;
    const char* name;
};
constexpr ReductionRow kReductions[] = {
    {Reduction::Sum, "sum"},
    {Reduction::Max, "max"},
};

const TypeRow& row(ElementType type) { return kTypes[static_cast<int>(type)]; }

/// The values of the rows with this name, or of all rows for "all".
template <class Row>
auto values_named(std::span<const Row> rows, const std::string& wanted, const char* option) {
    std::vector<decltype(Row::value)> found;
    std::vector<const char*> names;
    for (const Row& one : rows) {
        names.push_back(one.name);
        if (wanted == "all" || wanted == one.name) found.push_back(one.value);
    }
    if (found.empty()) {
        throw UserError("{} {}: unknown name; the known names are {} and all", option, wanted,
                        fmt::join(names, ", "));
    }
    return found;
}

uint32_t mixed(size_t index, int rank) {
    return philox({static_cast<uint32_t>(index), static_cast<uint32_t>(rank), 0, 0}, {0, 0})[0];
}

}  // namespace

const char* name(ElementType type) { return row(type).name; }
const char* name(std::optional<Reduction> reduction) {
    return reduction ? kReductions[static_cast<int>(*reduction)].name : "none";
}

std::vector<ElementType> types_named(const std::string& wanted) {
    return values_named<TypeRow>(kTypes, wanted, "--datatype");
}

std::vector<Reduction> reductions_named(const std::string& wanted) {
    return values_named<ReductionRow>(kReductions, wanted, "--op");
}

Pattern::Pattern(ElementType type, std::optional<Reduction> reduction, int num_ranks)
    : type_(type), reduction_(reduction), num_ranks_(num_ranks), periods_(num_ranks + 1) {}

/// A rank's value in a reduction. The rank's turn is (rank + index) modulo the number of ranks. In sums over
/// many ranks, only ranks with a small turn contribute; the others give zero.
double Pattern::value(int rank, size_t index) const {
    const int turn = static_cast<int>((static_cast<size_t>(rank) + index) % static_cast<size_t>(num_ranks_));
    const double sign = row(type_).is_signed && mixed(index, -1) % 2 == 1 ? -1 : 1;
    const int exact = row(type_).exact;
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
    if (rank == Part::kReduced) return row(type_).bits(reduced_value(index));
    if (reduction_) return row(type_).bits(value(rank, index));
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

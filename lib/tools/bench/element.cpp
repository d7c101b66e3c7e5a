#include "bench/element.h"

#include <fmt/ranges.h>

#include <cstring>
#include <iterator>

#include "base/element_type.h"
#include "base/error.h"

namespace argosy::bench {
namespace {

struct TypeRow {
    ElementType value;
    const char* name;
    bool is_signed;
    int exact;  // see largest_exact()
};

// REQUIRES: the order of the enumeration, which indexes the table. No benchmark uses UInt16, the last type.
constexpr TypeRow kTypes[] = {
    {ElementType::Int8, "int8", true, 127},          {ElementType::UInt8, "uint8", false, 255},
    {ElementType::Int32, "int32", true, 1 << 20},    {ElementType::UInt32, "uint32", false, 1 << 20},
    {ElementType::Int64, "int64", true, 1 << 20},    {ElementType::UInt64, "uint64", false, 1 << 20},
    {ElementType::Float16, "half", true, 2048},      {ElementType::Float32, "float", true, 1 << 20},
    {ElementType::Float64, "double", true, 1 << 20}, {ElementType::BFloat16, "bfloat16", true, 256},
    {ElementType::Float8E4M3, "fp8_e4m3", true, 16}, {ElementType::Float8E5M2, "fp8_e5m2", true, 8},
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

template <class Visit>
void visit_narrow(ElementType type, Visit visit) {
    switch (type) {
        case ElementType::Float16:
            return visit(Float16());
        case ElementType::BFloat16:
            return visit(BFloat16());
        case ElementType::Float8E4M3:
            return visit(Float8E4M3());
        case ElementType::Float8E5M2:
            return visit(Float8E5M2());
        default:
            return;
    }
}

/// Calls `visit` with a zero of the C++ type for `type`. Returns false if C++ has no such type.
template <class Visit>
bool visit_plain(ElementType type, Visit visit) {
    switch (type) {
        case ElementType::Int8:
            return visit(int8_t()), true;
        case ElementType::UInt8:
            return visit(uint8_t()), true;
        case ElementType::Int32:
            return visit(int32_t()), true;
        case ElementType::UInt32:
            return visit(uint32_t()), true;
        case ElementType::Int64:
            return visit(int64_t()), true;
        case ElementType::UInt64:
            return visit(uint64_t()), true;
        case ElementType::Float32:
            return visit(float()), true;
        case ElementType::Float64:
            return visit(double()), true;
        default:
            return false;
    }
}

}  // namespace

const char* name(ElementType type) { return row(type).name; }
const char* name(std::optional<Reduction> reduction) {
    return reduction ? kReductions[static_cast<int>(*reduction)].name : "none";
}
bool is_signed(ElementType type) { return row(type).is_signed; }
int largest_exact(ElementType type) { return row(type).exact; }

std::vector<ElementType> types_named(const std::string& wanted) {
    return values_named<TypeRow>(kTypes, wanted, "--datatype");
}

std::vector<Reduction> reductions_named(const std::string& wanted) {
    return values_named<ReductionRow>(kReductions, wanted, "--op");
}

uint64_t bits_of(double value, ElementType type) {
    uint64_t bits = 0;
    const bool plain = visit_plain(type, [&](auto zero) {
        const auto element = static_cast<decltype(zero)>(value);
        std::memcpy(&bits, &element, sizeof(element));
    });
    if (!plain) {
        visit_narrow(type, [&](auto number) { bits = number.rounded(static_cast<float>(value)); });
    }
    return bits;
}

}  // namespace argosy::bench

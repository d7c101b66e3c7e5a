#include "bench/element.h"

#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "base/element_type.h"
#include "base/error.h"

namespace argosy::bench {
namespace {

struct TypeRow {
    ElementType value;
    const char* name;
    bool is_signed;
    int exact, exponent;       // see largest_exact() and largest_exponent()
    int digits, min_exponent;  // significand bits, log2 of the smallest positive number; 0 for integers
};

// REQUIRES: the order of the enumeration, which indexes the table. No benchmark uses UInt16, the last type.
constexpr TypeRow kTypes[] = {
    {ElementType::Int8, "int8", true, 127, 6},
    {ElementType::UInt8, "uint8", false, 255, 7},
    {ElementType::Int32, "int32", true, 1 << 20, 30},
    {ElementType::UInt32, "uint32", false, 1 << 20, 31},
    {ElementType::Int64, "int64", true, 1 << 20, 62},
    {ElementType::UInt64, "uint64", false, 1 << 20, 63},
    {ElementType::Float16, "half", true, 2048, 15, 11, -24},
    {ElementType::Float32, "float", true, 1 << 20, 100, 24, -149},
    {ElementType::Float64, "double", true, 1 << 20, 100, 53, -1074},
    {ElementType::BFloat16, "bfloat16", true, 256, 100, 8, -133},
    {ElementType::Float8E4M3, "fp8_e4m3", true, 16, 8, 4, -9},
    {ElementType::Float8E5M2, "fp8_e5m2", true, 8, 15, 3, -16},
};

static_assert(std::size(kTypes) == static_cast<size_t>(ElementType::UInt16));  // which is not measured

struct ReductionRow {
    Reduction value;
    const char* name;
};
constexpr ReductionRow kReductions[] = {
    {Reduction::Sum, "sum"}, {Reduction::Product, "prod"}, {Reduction::Min, "min"},
    {Reduction::Max, "max"}, {Reduction::Average, "avg"},
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

template <class Element, class Change>
void change_each(std::span<std::byte> elements, Change change) {
    for (size_t at = 0; at < elements.size(); at += sizeof(Element)) {
        Element element;
        std::memcpy(&element, &elements[at], sizeof(element));
        element = change(element);
        std::memcpy(&elements[at], &element, sizeof(element));
    }
}

}  // namespace

const char* name(ElementType type) { return row(type).name; }
const char* name(std::optional<Reduction> reduction) {
    return reduction ? kReductions[static_cast<int>(*reduction)].name : "none";
}
bool is_signed(ElementType type) { return row(type).is_signed; }
int largest_exact(ElementType type) { return row(type).exact; }
int largest_exponent(ElementType type) { return row(type).exponent; }

std::vector<ElementType> types_named(const std::string& wanted) {
    return values_named<TypeRow>(kTypes, wanted, "--datatype");
}

std::vector<Reduction> reductions_named(const std::string& wanted) {
    if (wanted == "mulsum") {
        throw UserError(
            "--op mulsum is not supported: it is NCCL's sum of inputs that each rank scales; use sum or avg");
    }
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

double value_of(const std::byte* element, ElementType type) {
    double value = 0;
    const bool plain = visit_plain(type, [&](auto number) {
        std::memcpy(&number, element, sizeof(number));
        value = static_cast<double>(number);
    });
    if (plain) return value;
    visit_narrow(type, [&](auto number) {
        typename decltype(number)::Bits bits;
        std::memcpy(&bits, element, sizeof(bits));
        value = number.value(bits);
    });
    return value;
}

double largest_rounding(double value, ElementType type) {
    return std::ldexp(std::abs(value), -row(type).digits + 1) + std::ldexp(1.0, row(type).min_exponent);
}

void divide(std::span<std::byte> elements, ElementType type, int divisor) {
    const bool plain = visit_plain(type, [&](auto zero) {
        using Element = decltype(zero);
        // A one-byte type cannot hold every divisor, so the division uses int or a wider type.
        using Wide = std::common_type_t<Element, int>;
        change_each<Element>(elements, [divisor](Element element) {
            return static_cast<Element>(static_cast<Wide>(element) / static_cast<Wide>(divisor));
        });
    });
    if (plain) return;
    visit_narrow(type, [&](auto number) {
        using Bits = typename decltype(number)::Bits;
        change_each<Bits>(elements, [&](Bits bits) {
            return number.rounded(number.value(bits) / static_cast<float>(divisor));
        });
    });
}

}  // namespace argosy::bench

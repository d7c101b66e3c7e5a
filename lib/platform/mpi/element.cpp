// Maps this program's element types and reductions to MPI's (mpi/comm.h).
#include <array>
#include <cstdint>

#include "base/element_type.h"
#include "base/error.h"
#include "mpi/comm.h"

namespace argosy::mpi {
namespace {

template <class Number, Reduction kReduction>
typename Number::Bits combined_bits(typename Number::Bits bits_a, typename Number::Bits bits_b) {
    const float a = Number::value(bits_a), b = Number::value(bits_b);
    return Number::rounded(kReduction == Reduction::Sum ? a + b : (a > b ? a : b));
}

/// The results for all pairs of one-byte numbers.
template <class Number, Reduction kReduction>
struct ResultTable {
    std::array<uint8_t, 1 << 16> results;
    ResultTable() {
        for (int pair = 0; pair < 1 << 16; ++pair) {
            results[pair] = combined_bits<Number, kReduction>(static_cast<uint8_t>(pair >> 8),
                                                              static_cast<uint8_t>(pair));
        }
    }
};

template <class Number, Reduction kReduction>
void reduce(void* in, void* inout, int* length, MPI_Datatype*) {
    using Bits = typename Number::Bits;
    const auto* from = static_cast<const Bits*>(in);
    auto* into = static_cast<Bits*>(inout);
    if constexpr (sizeof(Bits) == 1) {
        static const ResultTable<Number, kReduction> table;
        for (int i = 0; i < *length; ++i) into[i] = table.results[from[i] << 8 | into[i]];
    } else {
        for (int i = 0; i < *length; ++i) into[i] = combined_bits<Number, kReduction>(from[i], into[i]);
    }
}

/// MPI's handles for a number format that MPI 3 lacks.
struct DerivedType {
    MPI_Datatype type;  // a type of as many bytes
    MPI_Op sum, max;
};

template <class Number, Reduction kReduction>
MPI_Op make_operation() {
    MPI_Op made;
    check(MPI_Op_create(reduce<Number, kReduction>, /*commute=*/1, &made), "MPI_Op_create");
    return made;
}

template <class Number>
const DerivedType& derived_type() {
    static const DerivedType derived = [] {
        DerivedType made;
        check(MPI_Type_contiguous(sizeof(typename Number::Bits), MPI_BYTE, &made.type),
              "MPI_Type_contiguous");
        check(MPI_Type_commit(&made.type), "MPI_Type_commit");
        made.sum = make_operation<Number, Reduction::Sum>();
        made.max = make_operation<Number, Reduction::Max>();
        return made;
    }();
    return derived;
}

/// Null for a type that MPI has.
const DerivedType* derived_type(ElementType type) {
    switch (type) {
        case ElementType::Float16:
            return &derived_type<Float16>();
        case ElementType::BFloat16:
            return &derived_type<BFloat16>();
        case ElementType::Float8E4M3:
            return &derived_type<Float8E4M3>();
        case ElementType::Float8E5M2:
            return &derived_type<Float8E5M2>();
        default:
            return nullptr;
    }
}

}  // namespace

MPI_Datatype datatype(ElementType type) {
    switch (type) {
        case ElementType::Int8:
            return MPI_INT8_T;
        case ElementType::UInt8:
            return MPI_UINT8_T;
        case ElementType::Int32:
            return MPI_INT32_T;
        case ElementType::UInt32:
            return MPI_UINT32_T;
        case ElementType::Int64:
            return MPI_INT64_T;
        case ElementType::UInt64:
            return MPI_UINT64_T;
        case ElementType::Float32:
            return MPI_FLOAT;
        case ElementType::Float64:
            return MPI_DOUBLE;
        default:
            break;
    }
    const DerivedType* derived = derived_type(type);
    ARGOSY_CHECK(derived, "no MPI type for element type {}", static_cast<int>(type));
    return derived->type;
}

MPI_Op operation(ElementType type, Reduction reduction) {
    const bool sum = reduction == Reduction::Sum;
    if (const DerivedType* derived = derived_type(type)) return sum ? derived->sum : derived->max;
    return sum ? MPI_SUM : MPI_MAX;
}

}  // namespace argosy::mpi

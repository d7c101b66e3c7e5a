#include "mpi/element.h"

#include <array>
#include <cstdint>

#include "base/element_type.h"
#include "mpi/comm.h"

namespace argosy::mpi {
namespace {

template <Reduction kReduction>
float combined(float a, float b) {
    switch (kReduction) {
        case Reduction::Sum:
            return a + b;
        case Reduction::Product:
            return a * b;
        case Reduction::Min:
            return a < b ? a : b;
        case Reduction::Max:
            return a > b ? a : b;
    }
}

template <class Number, Reduction kReduction>
typename Number::Bits combined_bits(typename Number::Bits a, typename Number::Bits b) {
    return Number::rounded(combined<kReduction>(Number::value(a), Number::value(b)));
}

/// The result for every pair of one-byte numbers: 65536 entries.
template <class Number, Reduction kReduction>
struct TableOfResults {
    std::array<uint8_t, 1 << 16> results;
    TableOfResults() {
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
        static const TableOfResults<Number, kReduction> table;
        for (int i = 0; i < *length; ++i) into[i] = table.results[from[i] << 8 | into[i]];
    } else {
        for (int i = 0; i < *length; ++i) into[i] = combined_bits<Number, kReduction>(from[i], into[i]);
    }
}

/// A number format that MPI 3 lacks: a type of as many bytes, and its reductions.
struct OwnType {
    MPI_Datatype type;
    std::array<MPI_Op, 4> reductions;
};

template <class Number, Reduction kReduction>
MPI_Op own_operation() {
    MPI_Op made;
    check(MPI_Op_create(reduce<Number, kReduction>, /*commute=*/1, &made), "MPI_Op_create");
    return made;
}

template <class Number>
const OwnType& own_type() {
    static const OwnType made = [] {
        OwnType own;
        check(MPI_Type_contiguous(sizeof(typename Number::Bits), MPI_BYTE, &own.type), "MPI_Type_contiguous");
        check(MPI_Type_commit(&own.type), "MPI_Type_commit");
        own.reductions = {own_operation<Number, Reduction::Sum>(),
                          own_operation<Number, Reduction::Product>(),
                          own_operation<Number, Reduction::Min>(), own_operation<Number, Reduction::Max>()};
        return own;
    }();
    return made;
}

/// Null for a type that MPI has.
const OwnType* own_type(ElementType type) {
    switch (type) {
        case ElementType::Float16:
            return &own_type<Float16>();
        case ElementType::BFloat16:
            return &own_type<BFloat16>();
        case ElementType::Float8E4M3:
            return &own_type<Float8E4M3>();
        case ElementType::Float8E5M2:
            return &own_type<Float8E5M2>();
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
            return own_type(type)->type;
    }
}

MPI_Op operation(ElementType type, Reduction reduction) {
    if (const OwnType* own = own_type(type)) return own->reductions[static_cast<int>(reduction)];
    switch (reduction) {
        case Reduction::Sum:
            return MPI_SUM;
        case Reduction::Product:
            return MPI_PROD;
        case Reduction::Min:
            return MPI_MIN;
        case Reduction::Max:
            return MPI_MAX;
    }
    return MPI_OP_NULL;
}

}  // namespace argosy::mpi

#include "mpi/element.h"

#include <array>
#include <cstdint>

#include "base/narrow_float.h"
#include "mpi/status.h"

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

/// Of one byte and another there are 65536 results.
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

/// MPI 3 has none of these: a type of as many bytes and its own reductions.
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
const OwnType* own_type(Type type) {
    switch (type) {
        case Type::Float16:
            return &own_type<Float16>();
        case Type::BFloat16:
            return &own_type<BFloat16>();
        case Type::Float8E4M3:
            return &own_type<Float8E4M3>();
        case Type::Float8E5M2:
            return &own_type<Float8E5M2>();
        default:
            return nullptr;
    }
}

}  // namespace

size_t size_bytes(Type type) {
    switch (type) {
        case Type::Int64:
        case Type::UInt64:
        case Type::Float64:
            return 8;
        case Type::Int32:
        case Type::UInt32:
        case Type::Float32:
            return 4;
        case Type::Float16:
        case Type::BFloat16:
            return 2;
        default:
            return 1;
    }
}

MPI_Datatype datatype(Type type) {
    switch (type) {
        case Type::Byte:
            return MPI_BYTE;
        case Type::Int8:
            return MPI_INT8_T;
        case Type::UInt8:
            return MPI_UINT8_T;
        case Type::Int32:
            return MPI_INT32_T;
        case Type::UInt32:
            return MPI_UINT32_T;
        case Type::Int64:
            return MPI_INT64_T;
        case Type::UInt64:
            return MPI_UINT64_T;
        case Type::Float32:
            return MPI_FLOAT;
        case Type::Float64:
            return MPI_DOUBLE;
        default:
            return own_type(type)->type;
    }
}

MPI_Op operation(Type type, Reduction reduction) {
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

// Types of elements and reductions as this program names them, and as MPI does: own types and operations for
// the numbers that MPI 3 has not.
#pragma once

#include <mpi.h>

#include <cstddef>

namespace argosy::mpi {

enum class Type {
    Byte,
    Int8,
    UInt8,
    Int32,
    UInt32,
    Int64,
    UInt64,
    Float16,
    BFloat16,
    Float32,
    Float64,
    Float8E4M3,
    Float8E5M2
};
enum class Reduction { Sum, Product, Min, Max };

size_t size_bytes(Type type);

/// Those of MPI, made at first use where they are our own and kept until the process ends.
MPI_Datatype datatype(Type type);
MPI_Op operation(Type type, Reduction reduction);

}  // namespace argosy::mpi

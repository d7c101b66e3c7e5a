// Maps this program's element types and reductions to MPI's. Element types that MPI 3 lacks get derived types
// and user-defined operations.
#pragma once

#include <mpi.h>

#include "base/element_type.h"

namespace argosy::mpi {

enum class Reduction { Sum, Product, Min, Max };

/// Return MPI's type and operation. A derived type or user-defined operation is made at its first use and
/// kept until the process ends.
MPI_Datatype datatype(ElementType type);
MPI_Op operation(ElementType type, Reduction reduction);

}  // namespace argosy::mpi

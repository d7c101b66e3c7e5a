// Maps this program's element types and reductions to MPI's. Number formats that MPI 3 lacks get derived
// types and user-defined operations.
#pragma once

#include <mpi.h>

#include "base/element_type.h"

namespace argosy::mpi {

enum class Reduction { Sum, Product, Min, Max };

/// MPI's types and operations. Derived types and user-defined operations are made at first use and kept until
/// the process ends.
MPI_Datatype datatype(ElementType type);
MPI_Op operation(ElementType type, Reduction reduction);

}  // namespace argosy::mpi

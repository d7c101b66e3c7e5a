// Types of elements and reductions as this program names them, and as MPI does: own types and operations for
// the numbers that MPI 3 has not.
#pragma once

#include <mpi.h>

#include "base/element_type.h"

namespace argosy::mpi {

enum class Reduction { Sum, Product, Min, Max };

/// Those of MPI, made at first use where they are our own and kept until the process ends.
MPI_Datatype datatype(ElementType type);
MPI_Op operation(ElementType type, Reduction reduction);

}  // namespace argosy::mpi

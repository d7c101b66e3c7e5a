// Turns MPI's return codes into errors with MPI's own text.
#pragma once

namespace argosy::mpi {

/// Throws RunError naming `call` unless `status` is MPI_SUCCESS.
void check(int status, const char* call);

}  // namespace argosy::mpi

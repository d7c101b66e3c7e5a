// MPI's return codes as errors, with MPI's own words.
#pragma once

namespace argosy::mpi {

/// Throws RunError naming `call` unless `status` is MPI_SUCCESS.
void check(int status, const char* call);

}  // namespace argosy::mpi

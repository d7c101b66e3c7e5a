// Records which ranks have reached MPI_Init: each makes a file with its number in a folder that all ranks
// see. The ranks that wait in MPI_Init have no other way to know about the others.
#pragma once

#include "base/environment.h"
#include "mpi/blocking_call.h"

namespace argosy::mpi {

/// Makes the file with this rank's number, if a folder is set.
void arrive(const Environment::Start& start);

/// Returns "missing: rank 3, 5", to be printed by the lowest rank that has arrived. Without a folder, or if
/// no file is missing, the text only says that a rank is missing.
MissingRanks missing_at_start(const Environment::Start& start);

}  // namespace argosy::mpi

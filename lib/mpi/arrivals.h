// Which ranks have come as far as starting MPI: each leaves its number in a folder that all of them see,
// since those who then wait know nothing of the others yet.
#pragma once

#include "base/environment.h"
#include "mpi/blocking_call.h"

namespace argosy::mpi {

/// Leaves this rank's number, where there is a folder for it.
void arrive(const Environment::Start& start);

/// "missing: rank 3, 5", of which the first of those that came speaks; without a folder or anybody missing in
/// it, that a rank is.
Absence missing_at_start(const Environment::Start& start);

}  // namespace argosy::mpi

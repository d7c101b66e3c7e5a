#include "mpi/status.h"

#include <mpi.h>

#include <string>

#include "base/error.h"

namespace argosy::mpi {

void check(int status, const char* call) {
    if (status == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(status, text, &length);
    throw RunError("{} failed: {}", call, std::string(text, length));
}

}  // namespace argosy::mpi

#include <cstdlib>

#include "base/error.h"
#include "nccl/comm.h"

namespace argosy::nccl {

std::string version_text(int number) {
    return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

// Where NCCL (src/enqueue.cc, v2.26.6-1, v2.27.3-1 and v2.28.9-1) chooses how NCCL_LAUNCH_ORDER_IMPLICIT
// orders launches: 2.26 waits for the end of the last one whenever it is part of a recording, 2.27.3 only if
// the driver is older than CUDA 12.9.
bool runs_recorded_at_once(int nccl_version, int driver_version) {
    return nccl_version >= kMinVersionForGraphs && driver_version >= kMinDriverForGraphs;
}

// NCCL_GRAPH_REGISTER=0: NCCL registers only the piece of memory in which a graph's buffer begins, but
// LibTorch's allocator may build a buffer from several pieces. Other ranks then read past the mapped memory
// (pytorch issue 158029, torchtitan issues 2050 and 3306; NCCL 2.28).
//
// NCCL_LAUNCH_ORDER_IMPLICIT=1: NCCL then starts the operations of several communicators in the order of
// their launches. Communicators that run at the same time, as in branches of a graph, must start in the same
// order on all ranks.
void prepare_for_graphs() {
    setenv("NCCL_GRAPH_REGISTER", "0", /*overwrite=*/0);
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
}

}  // namespace argosy::nccl

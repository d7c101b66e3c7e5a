#include <cstdlib>

#include "base/error.h"
#include "nccl/communicator.h"

namespace argosy::nccl {

std::string version_text() {
    const int number = version();
    return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

// A graph's buffers would be registered by the piece of memory that each begins in, of which LibTorch's
// allocator has several to a buffer: ranks then read past what is mapped (pytorch issue 158029, torchtitan
// issues 2050 and 3306; NCCL 2.28). And communicators that work at the same time, as branches of a graph do,
// must start in one order on all ranks.
void prepare_for_graphs() {
    setenv("NCCL_GRAPH_REGISTER", "0", /*overwrite=*/0);
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
}

}  // namespace argosy::nccl

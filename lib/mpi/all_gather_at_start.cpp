#include "mpi/all_gather_at_start.h"

#include <sched.h>

#include "mpi/blocking_call.h"

namespace argosy::mpi {

void all_gather_bytes_at_start(const Comm& ranks, void* all, std::span<const std::byte> own,
                               const std::string& what) {
    const BlockingCall call("telling each other " + what);
    Request request = ranks.all_gather(all, own.data(), own.size(), ElementType::UInt8);
    while (!test_all({&request, 1})) sched_yield();
}

}  // namespace argosy::mpi

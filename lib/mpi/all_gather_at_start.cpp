#include "mpi/tell_all.h"

#include <sched.h>

#include "mpi/blocking_call.h"

namespace argosy::mpi {

void tell_all_bytes(const Comm& ranks, void* all, std::span<const std::byte> own, const std::string& what) {
    const BlockingCall call("telling each other " + what);
    Request request = ranks.all_gather(all, own.data(), own.size(), ElementType::UInt8);
    while (!test_all({&request, 1})) sched_yield();
}

}  // namespace argosy::mpi

#include "nccl/communicator.h"

#include "base/error.h"

namespace argosy::nccl {
namespace {

[[noreturn]] void absent() {
    throw UserError("this build has no NCCL: configure it with -DARGOSY_CUDA=ON (preset cuda)");
}

}  // namespace

int version() { return 0; }
UniqueId make_unique_id() { absent(); }
void launch_together(const std::function<void()>& /*calls*/) { absent(); }

Communicator::Communicator(const UniqueId& /*id*/, int /*size*/, int /*rank*/) { absent(); }

// No Communicator exists in this build, so its members are never called.
void Communicator::all_gather(void*, const void*, size_t, ElementType, const cuda::Stream&) const {}
void Communicator::all_reduce(void*, const void*, size_t, ElementType, Reduction, const cuda::Stream&) const {
}
void Communicator::reduce_scatter(void*, const void*, size_t, ElementType, Reduction,
                                  const cuda::Stream&) const {}
void Communicator::reduce(void*, const void*, size_t, ElementType, Reduction, int,
                          const cuda::Stream&) const {}
void Communicator::broadcast(void*, const void*, size_t, ElementType, int, const cuda::Stream&) const {}
void Communicator::send(const void*, size_t, ElementType, int, const cuda::Stream&) const {}
void Communicator::receive(void*, size_t, ElementType, int, const cuda::Stream&) const {}
void Communicator::all_to_all(void*, const void*, size_t, ElementType, const cuda::Stream&) const {}
void Communicator::gather(void*, const void*, size_t, ElementType, int, const cuda::Stream&) const {}
void Communicator::scatter(void*, const void*, size_t, ElementType, int, const cuda::Stream&) const {}
void Communicator::require_health() const {}
std::future<void> Communicator::abort() {
    return std::async(std::launch::deferred, [] {});
}
void Communicator::Destroy::operator()(ncclComm* /*handle*/) const {}

}  // namespace argosy::nccl

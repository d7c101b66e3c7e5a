#include "nccl/comm.h"

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

Comm::Comm(const UniqueId& /*id*/, int /*size*/, int /*rank*/, int /*max_channels*/, bool /*copy_engines*/) {
    absent();
}

// No Comm exists in this build, so its members are never called.
void Comm::all_gather(void*, const void*, size_t, ElementType, const cuda::Stream&) const {}
void Comm::all_reduce(void*, const void*, size_t, ElementType, Reduction, const cuda::Stream&) const {}
void Comm::reduce_scatter(void*, const void*, size_t, ElementType, Reduction, const cuda::Stream&) const {}
void Comm::broadcast(void*, const void*, size_t, ElementType, int, const cuda::Stream&) const {}
void Comm::send(const void*, size_t, ElementType, int, const cuda::Stream&) const {}
void Comm::receive(void*, size_t, ElementType, int, const cuda::Stream&) const {}
void Comm::all_to_all(void*, const void*, size_t, ElementType, const cuda::Stream&) const {}
void Comm::require_health() const {}
std::future<void> Comm::abort() {
    return std::async(std::launch::deferred, [] {});
}
void Comm::Destroy::operator()(ncclComm* /*handle*/) const {}
RegisteredMemory::RegisteredMemory(const Comm& /*comm*/, int64_t /*num_bytes*/) { absent(); }
RegisteredMemory::RegisteredMemory(RegisteredMemory&&) noexcept = default;
RegisteredMemory::~RegisteredMemory() = default;

}  // namespace argosy::nccl

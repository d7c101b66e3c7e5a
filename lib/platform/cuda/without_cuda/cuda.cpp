// This room in a build without CUDA: counts and versions are 0, and all other functions throw UserError.
#include "base/error.h"
#include "cuda/device.h"
#include "cuda/memory.h"
#include "cuda/peer_memory.h"
#include "cuda/stream.h"

namespace argosy::cuda {
namespace {

[[noreturn]] void absent() {
    throw UserError("this build has no CUDA: configure it with -DARGOSY_CUDA=ON (preset cuda)");
}

}  // namespace

int device_count() { return 0; }
void set_device(int /*number*/) { absent(); }
int current_device() { absent(); }
Device describe_device(int /*number*/) { absent(); }
size_t free_memory_bytes() { absent(); }
int runtime_version() { return 0; }
int driver_version() { return 0; }

bool takes_ranges() { return false; }
void begin_range(const char* /*name*/) {}
void end_range() {}

DeviceMemory::DeviceMemory(size_t /*bytes*/) { absent(); }
void DeviceMemory::Free::operator()(std::byte* /*data*/) const {}

PinnedMemory::PinnedMemory(size_t /*bytes*/) { absent(); }
void PinnedMemory::Free::operator()(std::byte* /*data*/) const {}

void set_to_zero(std::byte*, size_t, const StreamView&) { absent(); }
void copy_to_device(std::byte*, std::span<const std::byte>, const StreamView&) { absent(); }
void copy_to_host(std::span<std::byte>, const std::byte*, const StreamView&) { absent(); }
void copy_on_device(std::byte*, const std::byte*, size_t, const StreamView&) { absent(); }

MemoryHandle handle_of(const DeviceMemory& /*memory*/) { absent(); }
MappedMemory::MappedMemory(const MemoryHandle& /*handle*/) { absent(); }
void MappedMemory::Close::operator()(std::byte* /*data*/) const {}
PeerAccess peer_access(const std::string& /*pci_bus_id*/) { return PeerAccess::Hidden; }
void write_value(std::byte*, uint32_t, const StreamView&) { absent(); }
void await_value(const std::byte*, uint32_t, const StreamView&) { absent(); }

Stream::Stream(Priority /*priority*/) { absent(); }
bool Stream::done() const { absent(); }
void Stream::synchronize() const { absent(); }
void Stream::Destroy::operator()(CUstream_st* /*handle*/) const {}

uint64_t StreamView::captured_by() const { absent(); }
void StreamView::synchronize() const { absent(); }
void StreamView::wait(const Event& /*event*/) const { absent(); }

Event::Event(Timing /*timing*/) { absent(); }
void Event::record(const StreamView& /*stream*/) { absent(); }
void Event::record_at_each_launch(const StreamView& /*stream*/) { absent(); }
bool Event::done() const { absent(); }
double Event::seconds_between(const Event& /*first*/, const Event& /*second*/) { absent(); }
void Event::Destroy::operator()(CUevent_st* /*handle*/) const {}

}  // namespace argosy::cuda

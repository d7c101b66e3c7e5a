#include "cuda/memory.h"

#include "cuda/without_cuda/absent.h"

namespace argosy::cuda {

DeviceMemory::DeviceMemory(size_t /*bytes*/) { absent(); }
void DeviceMemory::Free::operator()(std::byte* /*data*/) const {}

PinnedMemory::PinnedMemory(size_t /*bytes*/) { absent(); }
void PinnedMemory::Free::operator()(std::byte* /*data*/) const {}

void set_to_zero(std::byte*, size_t, const StreamView&) { absent(); }
void copy_to_device(std::byte*, std::span<const std::byte>, const StreamView&) { absent(); }
void copy_to_host(std::span<std::byte>, const std::byte*, const StreamView&) { absent(); }
void copy_on_device(std::byte*, const std::byte*, size_t, const StreamView&) { absent(); }

}  // namespace argosy::cuda

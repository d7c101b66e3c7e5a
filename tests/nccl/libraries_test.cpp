// The wrappers of CUDA and NCCL, linked with the real libraries. A machine without a driver has no devices,
// which is no error. On a machine with a device, the tests compute on it.
#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "cuda/device.h"
#include "cuda/memory.h"
#include "cuda/peer_memory.h"
#include "nccl/comm.h"

namespace argosy {
namespace {

TEST(Libraries, HaveVersionsWithoutADevice) {
    EXPECT_GE(nccl::version(), 22600);
    EXPECT_EQ(nccl::version_text().substr(0, 2), "2.");
    EXPECT_GE(cuda::runtime_version(), 12000);
}

TEST(Libraries, WithoutADriverThereAreNoDevices) {
    if (cuda::driver_version() != 0) GTEST_SKIP() << "there is a driver here";
    EXPECT_EQ(cuda::device_count(), 0);
    EXPECT_THROW(cuda::set_device(0), RunError);
    EXPECT_THROW(cuda::DeviceMemory(16), RunError);
    EXPECT_THROW(cuda::write_value(nullptr, 1, cuda::StreamView(nullptr)), RunError);
    EXPECT_EQ(cuda::peer_access("0000:3b:00.0"), cuda::PeerAccess::Hidden);
}

TEST(Libraries, ADeviceKeepsAndAddsUp) {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU here";
    cuda::set_device(0);
    EXPECT_FALSE(cuda::describe_device(0).pci_bus_id.empty());
    const cuda::Stream stream;
    const std::vector<float> numbers = {1, 2, 3};
    const cuda::DeviceMemory memory(sizeof(float) * numbers.size());
    cuda::copy_to_device(memory.data(), std::as_bytes(std::span(numbers)), stream);
    const nccl::Comm alone(nccl::make_unique_id(), 1, 0);
    alone.all_reduce(memory.data(), memory.data(), numbers.size(), ElementType::Float32, Reduction::Sum,
                     stream);
    std::vector<float> found(numbers.size());
    cuda::copy_to_host(std::as_writable_bytes(std::span(found)), memory.data(), stream);
    stream.synchronize();
    EXPECT_EQ(found, numbers);
}

TEST(Libraries, AStreamWritesToPinnedMemory) {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU here";
    cuda::set_device(0);
    const cuda::Stream stream;
    const auto seven = std::byte{7};
    const cuda::DeviceMemory memory(1);
    const cuda::PinnedMemory pinned(2);
    pinned.data()[0] = std::byte{3};
    cuda::copy_to_device(memory.data(), {&seven, 1}, stream);
    cuda::copy_to_host({pinned.data() + 1, 1}, memory.data(), stream);
    stream.synchronize();
    EXPECT_EQ(pinned.data()[0], std::byte{3});
    EXPECT_EQ(pinned.data()[1], seven);
}

TEST(Libraries, AStreamAwaitsWhatAnotherOneWrites) {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU here";
    cuda::set_device(0);
    EXPECT_EQ(cuda::peer_access(cuda::describe_device(0).pci_bus_id), cuda::PeerAccess::Reached);
    const cuda::Stream first, second;
    const cuda::DeviceMemory memory(cuda::kSharedPageBytes);
    EXPECT_NE(cuda::handle_of(memory), cuda::MemoryHandle{});
    cuda::set_to_zero(memory.data(), memory.bytes(), first);
    first.synchronize();
    constexpr uint32_t kBeforeWrap = ~uint32_t{0} - 1, kAfterWrap = 3;
    cuda::write_value(memory.data(), kBeforeWrap, first);
    first.synchronize();
    cuda::await_value(memory.data(), kAfterWrap, second);
    EXPECT_FALSE(second.done());
    cuda::write_value(memory.data(), kAfterWrap + 1, first);
    second.synchronize();
}

}  // namespace
}  // namespace argosy

// Owners of device memory and of pinned host memory; copies to, from and within a device. A copy begins when
// its stream has done all earlier work. Source and target must stay valid until the stream has done the copy.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "cuda/stream.h"

namespace argosy::cuda {

/// Memory of this thread's device. The constructor throws MemoryError with the bytes wanted and the bytes
/// free.
class DeviceMemory {
  public:
    explicit DeviceMemory(size_t bytes);

    std::byte* data() const { return data_.get(); }
    size_t bytes() const { return bytes_; }

  private:
    struct Free {
        void operator()(std::byte* data) const;
    };
    std::unique_ptr<std::byte, Free> data_;
    size_t bytes_;
};

/// Pinned memory of the host, which a device can write to: the host sees what a copy has written while the
/// stream goes on. REQUIRES: this thread records no graph.
class PinnedMemory {
  public:
    explicit PinnedMemory(size_t bytes);

    std::byte* data() const { return data_.get(); }
    size_t bytes() const { return bytes_; }

  private:
    struct Free {
        void operator()(std::byte* data) const;
    };
    std::unique_ptr<std::byte, Free> data_;
    size_t bytes_;
};

void set_to_zero(std::byte* data, size_t bytes, const StreamView& stream);
void copy_to_device(std::byte* to, std::span<const std::byte> from, const StreamView& stream);
void copy_to_host(std::span<std::byte> to, const std::byte* from, const StreamView& stream);
void copy_on_device(std::byte* to, const std::byte* from, size_t bytes, const StreamView& stream);

}  // namespace argosy::cuda

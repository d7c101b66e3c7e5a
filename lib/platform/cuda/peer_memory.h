// Device memory that other processes of the node map into theirs (CUDA's interprocess memory), and words in
// it that streams write and await. A device copies to such memory (cuda/memory.h) with its copy engines, and
// its front end handles the words: no multiprocessor takes part, and no host waits.
//
// The driver's functions are looked up at run time, so that nothing links the driver's library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "cuda/memory.h"
#include "cuda/stream.h"

namespace argosy::cuda {

/// CUDA maps whole pages of this size. Memory of other sizes may share its pages with other allocations.
inline constexpr size_t kSharedPageBytes = size_t{2} << 20;

/// A handle by which other processes map memory.
using MemoryHandle = std::array<std::byte, 64>;

/// REQUIRES: memory.bytes() is a multiple of kSharedPageBytes. The memory may be freed only when no other
/// process maps it any more. Throws RunError.
MemoryHandle handle_of(const DeviceMemory& memory);

/// Memory of another process, mapped for this thread's device.
class MappedMemory {
  public:
    /// Throws RunError if CUDA cannot map it.
    explicit MappedMemory(const MemoryHandle& handle);

    std::byte* data() const { return data_.get(); }

  private:
    struct Close {
        void operator()(std::byte* data) const;
    };
    std::unique_ptr<std::byte, Close> data_;
};

/// How this thread's device reaches the memory of the node's device with this PCI bus id. Hidden: this
/// process does not see that device.
enum class PeerAccess { Reached, NotReached, Hidden };
PeerAccess peer_access(const std::string& pci_bus_id);

/// The stream writes `value` to a word of device memory, after what its earlier work has written is visible
/// to all devices. This function and the next one throw RunError where the driver or the device lacks them.
void write_value(std::byte* word, uint32_t value, const StreamView& stream);

/// Later work of the stream begins once the word, less `value`, is 0 or more as a signed number: the order
/// of counters that wrap around. What other devices wrote before the word is visible then. REQUIRES: the word
/// is in memory of this thread's device. CUDA does not see whom the stream waits for: if both were on one
/// queue of the device, a wait that is submitted before the write would never end. Nothing but the write, or
/// the end of the process, ends the wait.
void await_value(const std::byte* word, uint32_t value, const StreamView& stream);

}  // namespace argosy::cuda

// Where the kernels of a suite run: over the emulator (gpu_place_emulated.cpp) or on a GPU
// (gpu_place_device.cpp). A suite is built once with each of them; its tests are the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace argosy::kernels {

/// Whether kernels can run on this machine.
bool has_gpu();

/// Memory that tests and kernels share: each sees the other's writes.
void* allocate_visible(size_t bytes);
void free_visible(void* memory);

template <class T>
struct VisibleAllocator {
    using value_type = T;
    VisibleAllocator() = default;
    template <class Other>
    VisibleAllocator(const VisibleAllocator<Other>&) {}
    T* allocate(size_t count) { return static_cast<T*>(allocate_visible(count * sizeof(T))); }
    void deallocate(T* memory, size_t) { free_visible(memory); }
    bool operator==(const VisibleAllocator&) const { return true; }
};
template <class T>
using Visible = std::vector<T, VisibleAllocator<T>>;

enum class Threads { Forwards, Backwards };

/// Sets the order in which threads and blocks run from now on; seed 0 is the order of block numbers. A GPU
/// ignores it.
void set_order(Threads threads, uint64_t block_seed);
/// Sets the number of multiprocessors; a GPU ignores it.
void set_multiprocessors(int number);
/// Resets to the initial state.
void reset_place();

}  // namespace argosy::kernels

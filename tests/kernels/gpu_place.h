// Where the kernels of a suite run: over the emulator (gpu_place_emulated.cpp) or on a GPU
// (gpu_place_device.cpp). A suite is built with one of them; its tests are the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace argosy::kernels {

/// Whether kernels can run at all.
bool has_gpu();

/// Memory that tests and kernels both use, of which either sees what the other wrote.
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

/// In which order threads and blocks run from now on; seed 0 is by blocks' numbers. A GPU has its own.
void set_order(Threads threads, uint64_t block_seed);
/// As many as it is to have; a GPU has its own.
void set_multiprocessors(int number);
/// As it was at first.
void reset_place();

}  // namespace argosy::kernels

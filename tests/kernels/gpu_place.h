// Where the kernels of a suite run: over the emulator (gpu_place_emulated.cpp) or on a GPU
// (gpu_place_device.cpp). A suite is built once with each of them; its tests are the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace argosy::kernels {

/// Whether kernels can run on this machine.
bool has_gpu();

// The memory of kernels. The host reaches it only by copies, and never touches it itself: a sanitizer sees
// copies, but not the host's writes to memory that both sides share.

void* allocate_on_gpu(size_t bytes);
void free_on_gpu(void* memory);
void copy_to_gpu(void* to, const void* from, size_t bytes);
/// Waits for the kernels that were launched before.
void copy_from_gpu(void* to, const void* from, size_t bytes);

/// Whether memory that a test has not written gets marks on the GPU, so that the test finds what no kernel
/// wrote. compute-sanitizer's initcheck finds that itself, and also finds reads of such memory, but takes a
/// mark for a value. ARGOSY_TEST_MARKS=0 therefore leaves the memory as it was allocated.
inline bool marks_unwritten_memory() {
    const char* choice = std::getenv("ARGOSY_TEST_MARKS");
    return choice == nullptr || std::string_view(choice) != "0";
}

enum class Threads { Forwards, Backwards };

/// Sets the order in which threads and blocks run from now on; seed 0 is the order of block numbers. A GPU
/// ignores it.
void set_order(Threads threads, uint64_t block_seed);
/// Sets the number of multiprocessors; a GPU ignores it.
void set_multiprocessors(int number);
/// Resets to the initial state.
void reset_place();

}  // namespace argosy::kernels

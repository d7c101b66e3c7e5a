// The GPU of this thread, as LibTorch's functions see it: the device, its current stream, and the caching
// allocator that all memory there comes from. with_cuda/ has the implementation and is the only folder that
// includes LibTorch's headers for CUDA. A build without CUDA takes without_cuda/, where no tensor is on a GPU
// and functions that need a GPU throw UserError.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

struct CUstream_st;  // CUDA's name for what a cudaStream_t points to

namespace argosy::gpu {

/// Makes the GPU with this number, among those that this process sees, this thread's device. LibTorch gets a
/// new current stream there, because a graph cannot record the device's default stream. LibTorch computes
/// products of fp32 in fp32 afterwards, never TF32. Returns LibTorch's name of the device. REQUIRES: the
/// thread has not made a tensor yet.
c10::Device use(int number);

/// Whether this tensor is in a GPU's memory, so that kernels for GPUs work on it.
bool holds(const at::Tensor& x);

/// Waits until this thread's GPU has done everything that was queued on the current stream. Does nothing
/// without a GPU.
void synchronize();

/// This thread's current stream: LibTorch's operations and this program's kernels are queued on it.
CUstream_st* current_stream();

/// Figures of LibTorch's caching allocator on this thread's GPU.
struct MemoryFigures {
    int64_t allocated_bytes = 0, peak_allocated_bytes = 0;  // by tensors
    int64_t reserved_bytes = 0, peak_reserved_bytes = 0;    // taken from the GPU for them
    int64_t num_retries = 0;  // allocations that first had to free all cached memory
};
/// Empty before use().
std::optional<MemoryFigures> memory();

/// Allocates memory for other things than tensors, in the order of the current stream, like a tensor's
/// memory. Throws the exception of a tensor's allocation if there is too little memory.
std::shared_ptr<std::byte> allocate(size_t num_bytes);

/// Resets the peaks to the current figures. Does nothing before use().
void reset_peak_memory();

/// A failed allocation, and the memory in use at that time. The allocator had freed all cached memory before
/// it failed, unless a graph was being recorded.
struct AllocationFailure {
    int64_t wanted_bytes = 0;
    int64_t allocated_bytes = 0, reserved_bytes = 0;
    int64_t device_free_bytes = 0, device_total_bytes = 0;
};
/// The last failure in this process, on any thread. Any thread may ask.
std::optional<AllocationFailure> last_allocation_failure();

}  // namespace argosy::gpu

// The calling thread's GPU in LibTorch: the device, its current stream, and the caching allocator that
// provides all memory on the GPU. Only with_cuda/ includes LibTorch's headers for CUDA. A build without CUDA
// compiles without_cuda/ instead: there, no tensor is on a GPU, and functions that need a GPU throw
// UserError.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

struct CUstream_st;  // CUDA's name for what a cudaStream_t points to

namespace argosy::gpu {

/// Makes GPU `number`, counted among the GPUs that this process sees, the calling thread's device. Sets a new
/// current stream, because a graph cannot record the default stream. Afterwards LibTorch computes fp32
/// products in fp32, never in TF32. Returns LibTorch's name of the device. REQUIRES: the thread has not made
/// a tensor yet.
c10::Device use(int number);

/// Whether the tensor is in a GPU's memory, where GPU kernels can access it.
bool holds(const at::Tensor& x);

/// Waits until the GPU has finished all work on the current stream. Does nothing without a GPU.
void synchronize();

/// Gives the memory back that LibTorch's allocator keeps for later tensors.
void free_cached_memory();

/// This thread's current stream: LibTorch's operations and this program's kernels are queued on it.
CUstream_st* current_stream();

/// Figures of LibTorch's caching allocator on this thread's GPU.
struct MemoryFigures {
    int64_t allocated_bytes = 0, peak_allocated_bytes = 0;  // in use
    int64_t reserved_bytes = 0, peak_reserved_bytes = 0;    // taken from the GPU: in use or cached
    int64_t num_retries = 0;  // allocations that first had to free all cached memory
};
/// Empty before use().
std::optional<MemoryFigures> memory();

/// Allocates memory for something other than a tensor. The memory belongs to the current stream and is reused
/// in the order of the stream's work, like a tensor's memory. Throws what a tensor's allocation throws if
/// there is too little memory.
std::shared_ptr<std::byte> allocate(size_t num_bytes);

/// Resets the peaks to the current figures. Does nothing before use().
void reset_peak_memory();

/// A failed allocation, and the memory in use at that time. The allocator frees all cached memory before it
/// fails, except while a graph is recorded.
struct AllocationFailure {
    int64_t requested_bytes = 0;
    int64_t allocated_bytes = 0, reserved_bytes = 0;
    int64_t device_free_bytes = 0, device_total_bytes = 0;
};
/// The last failure on any thread of this process. Any thread may call this function.
std::optional<AllocationFailure> last_allocation_failure();

}  // namespace argosy::gpu

// LibTorch's GPU functions, as the rest of the program uses them. with_cuda/ has the implementation and is
// the only folder that includes LibTorch's headers for CUDA. A build without CUDA takes without_cuda/, where
// no tensor is on a GPU and functions that need a GPU throw UserError.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

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

// This thread's current stream: LibTorch's operations and this program's kernels are queued on it.

CUstream_st* current_stream();

}  // namespace argosy::gpu

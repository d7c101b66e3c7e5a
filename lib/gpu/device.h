// What LibTorch's half for GPUs offers to the rest. real/ calls it; a build without CUDA takes none/, where
// no GPU holds any tensor and everything else throws UserError. LibTorch's headers for CUDA are included in
// real/ alone.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace argosy::gpu {

/// Makes the GPU with this number, of those that this process sees, this thread's, and gives LibTorch a
/// stream of its own on it: the device's default stream can be no part of a graph. LibTorch's products of
/// fp32 are fp32 from then on, never TF32. Returns what LibTorch calls the device. To be called before the
/// thread's first tensor.
c10::Device use(int number);

/// Whether this tensor lies on a GPU, so that kernels for GPUs work on it.
bool holds(const at::Tensor& x);

/// Waits until this thread's GPU has done everything that was put on the current stream. Without a GPU
/// there is nothing to wait for.
void synchronize();

}  // namespace argosy::gpu

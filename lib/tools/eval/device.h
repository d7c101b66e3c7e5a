// Chooses the device of an evaluation: the CPU, or one GPU.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "cuda/device.h"

namespace argosy::eval {

struct Device {
    c10::Device torch_device = c10::kCPU;  // LibTorch's name for it
    std::optional<cuda::Device> gpu = {};

    /// The name in results: "cpu" or "cuda:0".
    std::string name() const;
    /// A description for people.
    std::string text() const;
};

/// `wanted` is "cpu", "gpu" or "auto" (a GPU if this process sees one). The first GPU is used and becomes
/// this thread's device, so call this before the thread's first tensor. Warns of environment variables that
/// slow the GPU down or make its fp32 products less precise than fp32. Throws UserError if "gpu" finds no
/// GPU, and RunError if the GPU cannot be used: its driver is too old, or another process has exclusive
/// access.
Device choose_device(const std::string& wanted);

/// Returns the bytes of residual streams that pass a unit before the next unit is read (PerplexityOptions):
/// `usual` on a CPU, and a share of the free memory on a GPU, so that weights are read as rarely as possible.
int64_t stream_bytes(const Device& device, int64_t usual);

}  // namespace argosy::eval

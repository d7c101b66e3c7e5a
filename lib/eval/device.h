// Where an evaluation computes: the processor, or one GPU.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "cuda/device.h"

namespace argosy::eval {

struct Place {
    c10::Device device = c10::kCPU;  // as LibTorch calls it
    std::optional<cuda::Device> gpu = {};

    /// As results have it: "cpu" or "cuda:0".
    std::string name() const;
    /// For people.
    std::string text() const;
};

/// `wanted` is "cpu", "gpu" or "auto", which is a GPU where this process sees one. Of GPUs it is the first,
/// which becomes this thread's: to be called before the thread's first tensor. Warns of what in the
/// environment makes it slow, or its products of fp32 less than that. UserError for a GPU where there is
/// none, RunError for one that cannot be used: its driver is too old, or another process has it for itself.
Place choose_place(const std::string& wanted);

/// Of residual streams that pass a unit before the next one is read, where they lie (PerplexityOptions):
/// `usual`, or of a GPU a share of what it has free, so that weights are read as seldom as can be.
int64_t round_bytes(const Place& place, int64_t usual);

}  // namespace argosy::eval

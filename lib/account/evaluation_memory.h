// Explains why an evaluation ran out of memory: the bytes requested, the other uses of memory, and options to
// change.
#pragma once

#include <cstdint>
#include <string>

namespace argosy::account {

/// The settings that determine an evaluation's memory and that the user can change.
struct MemoryNeeds {
    bool on_gpu = false;
    std::string dtype;  // fp32, bf16 or fp16: the type of the computation
    int64_t batch_tokens = 0;
    int64_t longest_window = 0;  // in inputs; a batch has at least one window
};

/// Call it inside a handler of any exception: throws RunError if the GPU or the host ran out of memory,
/// otherwise rethrows the exception.
[[noreturn]] void explain_shortage(const MemoryNeeds& needs);

}  // namespace argosy::account

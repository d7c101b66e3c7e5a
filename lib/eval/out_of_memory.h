// An evaluation for which there was no memory: how much was asked for, what held the rest, and what to
// change.
#pragma once

#include <cstdint>
#include <string>

namespace argosy::eval {

/// What an evaluation's need of memory follows from, and can be changed.
struct MemoryNeeds {
    bool on_gpu = false;
    std::string dtype;  // as compute_type() takes it
    int64_t batch_tokens = 0;
    int64_t longest_window = 0;  // a batch has one of them at least
};

/// Within a handler of any exception: throws RunError where memory was missing, on the GPU or the host, and
/// otherwise the exception again.
[[noreturn]] void explain_shortage(const MemoryNeeds& needs);

}  // namespace argosy::eval

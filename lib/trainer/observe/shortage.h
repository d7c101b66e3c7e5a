// Recognises out-of-memory exceptions, describes the memory at the time of the failure, and explains the
// failure of an evaluation. plan/training_memory.h explains the failure of a training run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace argosy::observe {

struct Shortage {
    enum class Where { Host, Gpu };
    Where where = Where::Host;
    // Empty: unknown.
    std::optional<int64_t> requested_bytes = {};
    std::optional<int64_t> tensor_bytes = {};  // of all tensors in that memory, activations included
    struct Gpu {
        int64_t reserved_bytes = 0, free_bytes = 0, total_bytes = 0;
    };
    std::optional<Gpu> gpu = {};
};

/// Describes the exception that is being handled; empty if that exception is not an out-of-memory error.
/// Throws nothing. REQUIRES: the caller is inside a catch block.
std::optional<Shortage> find_shortage();

/// For messages: "1.5 GiB".
std::string gibibytes_text(int64_t bytes);

/// ": 1.5 GiB requested"; empty if the size is unknown.
std::string request_text(const Shortage& found);

/// Says which memory ran out: "of the GPU's 80 GiB", "of 2 GiB of tensors in the host's memory", or "in the
/// host's memory".
std::string which_memory(const Shortage& found);

/// For a shortage in the host's memory: ", in the host's memory, beside 2 GiB of tensors there".
std::string host_memory(const Shortage& found);

/// Lists what uses the GPU's memory beside tensors. REQUIRES: found.gpu.
std::vector<std::string> parts_beside_tensors(const Shortage& found);

/// If the GPU or the host ran out of memory, throws RunError with the requested bytes, the other uses of
/// memory and what an evaluation needs less with, which begins with `options`; otherwise rethrows the current
/// exception. REQUIRES: the caller is inside a catch block.
[[noreturn]] void explain_shortage(const char* options);

/// Returns work(), whose errors are explained as by explain_shortage().
template <class Work>
auto explained(const char* options, const Work& work) {
    try {
        return work();
    } catch (...) {
        explain_shortage(options);
    }
}

}  // namespace argosy::observe

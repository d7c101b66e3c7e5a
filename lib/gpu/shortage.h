// Which exceptions are about memory, and what is known of the moment when there was none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace argosy::gpu {

struct Shortage {
    enum class Where { Host, Gpu };
    Where where = Where::Host;
    // In bytes, where they are known.
    std::optional<int64_t> wanted = {};
    std::optional<int64_t> tensors = {};  // that were held there, activations and all
    struct Gpu {
        int64_t reserved = 0, free = 0, total = 0;
    };
    std::optional<Gpu> gpu = {};
};

/// Within a handler of any exception: none where it is about something else. Throws nothing.
std::optional<Shortage> find_shortage();

/// For messages: "1.5 GiB".
std::string gibibytes(int64_t bytes);

/// ": 1.5 GiB asked for", where it is known.
std::string asked_for(const Shortage& found);

/// Which memory it was: "of the GPU's 80 GiB", or of the tensors in the host's.
std::string which_memory(const Shortage& found);

/// Of a shortage in the host's memory: ", in the host's memory, beside 2 GiB of tensors there".
std::string host_memory(const Shortage& found);

/// Beside tensors, what a GPU's memory went to. REQUIRES: found.gpu.
std::vector<std::string> parts_beside_tensors(const Shortage& found);

}  // namespace argosy::gpu

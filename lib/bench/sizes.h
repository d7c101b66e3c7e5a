// Sizes in nccl-tests' notation: K, M and G are powers of 1024, and a sweep grows by a step or by a factor.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace argosy::bench {

/// Parses "8", "1.5M", "128m", "2G". Throws UserError, which names `option`.
size_t parse_size(const std::string& text, const char* option);

struct Sweep {
    size_t min_bytes = size_t{32} << 20;
    size_t max_bytes = size_t{32} << 20;
    size_t step_bytes = size_t{1} << 20;
    int factor = 0;  // 0: the sweep grows by step_bytes
};

/// All sizes of the sweep. Throws UserError for a sweep that does not end or goes backwards.
std::vector<size_t> sizes_of(const Sweep& sweep);

}  // namespace argosy::bench

// Sizes as nccl-tests takes them: K, M and G are powers of 1024, and a sweep goes by steps or by factors.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace argosy::bench {

/// "8", "1.5M", "128m", "2G". Throws UserError that names `option`.
size_t parse_size(const std::string& text, const char* option);

struct Sweep {
    size_t min_bytes = size_t{32} << 20;
    size_t max_bytes = size_t{32} << 20;
    size_t step_bytes = size_t{1} << 20;
    int factor = 0;  // 0: by steps
};

/// Throws UserError for a sweep that does not end or goes backwards.
std::vector<size_t> sizes_of(const Sweep& sweep);

}  // namespace argosy::bench

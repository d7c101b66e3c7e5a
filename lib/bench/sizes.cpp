#include "bench/sizes.h"

#include <cctype>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace argosy::bench {

size_t parse_size(const std::string& text, const char* option) {
    double number = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const std::string unit(rest, text.data() + text.size());
    const size_t power =
        std::string("KMG").find(unit.empty() ? ' ' : static_cast<char>(std::toupper(unit[0])));
    const bool known = unit.empty() || (unit.size() == 1 && power != std::string::npos);
    const double bytes = unit.empty() ? number : std::ldexp(number, 10 * static_cast<int>(power + 1));
    constexpr double kMost = 1e15;
    if (error != std::errc() || !known || !(bytes >= 0 && bytes <= kMost)) {
        throw UserError(
            "{} {}: not a size; write bytes, or a number with K, M or G (powers of 1024), as 128M", option,
            text);
    }
    return static_cast<size_t>(bytes);
}

std::vector<size_t> sizes_of(const Sweep& sweep) {
    if (sweep.min_bytes > sweep.max_bytes) {
        throw UserError("--minbytes {} is more than --maxbytes {}", sweep.min_bytes, sweep.max_bytes);
    }
    if (sweep.factor == 1 || sweep.factor < 0) {
        throw UserError("--stepfactor {}: sizes grow by a factor of 2 or more", sweep.factor);
    }
    if (sweep.factor > 1 && sweep.min_bytes == 0) {
        throw UserError("--minbytes 0 stays 0 under --stepfactor; begin with 1 or more");
    }
    if (sweep.factor == 0 && sweep.step_bytes == 0 && sweep.min_bytes < sweep.max_bytes) {
        throw UserError("--stepbytes 0 never comes to --maxbytes");
    }
    std::vector<size_t> sizes;
    for (size_t size = sweep.min_bytes; size <= sweep.max_bytes;
         size = sweep.factor > 1 ? size * sweep.factor : size + sweep.step_bytes) {
        sizes.push_back(size);
        // Ends here, because the next size could overflow size_t.
        if (sweep.factor > 1 ? size > sweep.max_bytes / sweep.factor : size == sweep.max_bytes) break;
        constexpr size_t kMaxSizes = 100000;
        if (sizes.size() > kMaxSizes)
            throw UserError("--stepbytes {} makes more than {} sizes", sweep.step_bytes, kMaxSizes);
    }
    return sizes;
}

}  // namespace argosy::bench

#include "bench/options.h"

#include <cctype>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace argosy::bench {
namespace {

void require_at_least(int least, int value, const char* option) {
    if (value < least) throw UserError("{} {}: at least {}", option, value, least);
}

std::filesystem::path normal(const std::filesystem::path& path) {
    return std::filesystem::absolute(path).lexically_normal();
}

}  // namespace

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

void check_timeout(double seconds) {
    if (!(seconds > 0)) throw UserError("--timeout {}: more than 0 seconds", seconds);
}

void check(const Options& options, int num_ranks) {
    require_at_least(1, options.iterations, "--iters");
    require_at_least(1, options.aggregated, "--agg_iters");
    require_at_least(0, options.warmup, "--warmup_iters");
    require_at_least(0, options.cycles, "--run_cycles");
    require_at_least(0, options.checks, "--check");
    require_at_least(0, options.skipped, "--per_iter_skip");
    if (options.skipped >= options.iterations) {
        throw UserError("--per_iter_skip {} leaves none of --iters {}", options.skipped, options.iterations);
    }
    check_timeout(options.timeout_seconds);
    if (options.cycles == 0 && !(options.json.empty() && options.csv.empty())) {
        throw UserError("--run_cycles 0 never ends, so its --output_file or --csv would never be written");
    }
    if (!options.json.empty() && !options.csv.empty() && normal(options.json) == normal(options.csv)) {
        throw UserError("--output_file and --csv name the same file, {}; each needs one of its own",
                        options.csv.string());
    }
    if (options.blocking_calls && options.aggregated > 1) {
        throw UserError(
            "--agg_iters {} wants several operations under way at once, which --blocking 1 forbids",
            options.aggregated);
    }
    if (options.mesh && static_cast<int64_t>(options.mesh->across) * options.mesh->within != num_ranks) {
        throw UserError("--mesh {}x{} has {} ranks, but {} were started", options.mesh->across,
                        options.mesh->within,
                        static_cast<int64_t>(options.mesh->across) * options.mesh->within, num_ranks);
    }
    if (options.root && (*options.root < 0 || *options.root >= num_ranks)) {
        throw UserError("--root {}: the ranks are 0 to {}", *options.root, num_ranks - 1);
    }
}

}  // namespace argosy::bench

#include "bench/options.h"

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

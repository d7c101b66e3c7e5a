#include "bench/options.h"

#include <charconv>

#include "base/error.h"

namespace argosy::bench {
namespace {

void require_at_least(int least, int value, const char* option) {
    if (value < least) throw UserError("{} {}: at least {}", option, value, least);
}

}  // namespace

GroupShape parse_mesh(const std::string& text) {
    GroupShape shape = {};
    const char* const end = text.data() + text.size();
    const auto across = std::from_chars(text.data(), end, shape.across);
    const bool cross = across.ec == std::errc() && across.ptr != end && *across.ptr == 'x';
    const auto within = cross ? std::from_chars(across.ptr + 1, end, shape.within) : across;
    if (!cross || within.ec != std::errc() || within.ptr != end || shape.across < 1 || shape.within < 1) {
        throw UserError("--mesh {}: write NODESxRANKS, as 4x8 for 4 nodes of 8 ranks", text);
    }
    return shape;
}

std::optional<int> parse_root(const std::string& text) {
    if (text == "all") return std::nullopt;
    int root = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), root);
    if (error != std::errc() || rest != text.data() + text.size()) {
        throw UserError("--root {}: a rank's number, or all", text);
    }
    return root;
}

AcrossRanks parse_across_ranks(int number) {
    if (number < 0 || number > 3) throw UserError("--average {}: 0 rank 0, 1 mean, 2 min, 3 max", number);
    return static_cast<AcrossRanks>(number);
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
    if (!(options.timeout_seconds > 0))
        throw UserError("--timeout {}: more than 0 seconds", options.timeout_seconds);
    if (options.cycles == 0 && !(options.json.empty() && options.csv.empty())) {
        throw UserError("--run_cycles 0 never ends, so its --output_file or --csv would never be written");
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

const std::vector<RefusedOption>& refused_options() {
    static const std::vector<RefusedOption> table = {
        {"-t,--nthreads", "1", "every rank is a process of its own: start more ranks"},
        {"-g,--ngpus", "1", "every rank has one device: start more ranks"},
        {"-p,--parallel_init", "0", "every rank is a process, so they always start at the same time"},
        {"-y,--stream_null", "0", "it picks a CUDA stream, and the MPI backend has none"},
        {"-G,--cudagraph", "0", "it replays CUDA graphs, and the MPI backend has none"},
        {"-R,--local_register", "0", "it registers buffers with NCCL; MPI registers its own"},
        {"-x,--cta_policy", "0", "it sets how NCCL takes multiprocessors of a GPU"},
        {"-D,--device_implementation", "0", "it picks NCCL's kernels of the device side"},
        {"-V,--device_cta_count", "16", "it sets the size of NCCL's kernels of the device side"},
        {"-M,--memory", "0", "it reports the GPU memory that NCCL takes"},
        {"-u,--unalign", "0", "buffers are aligned to pages here, always"},
    };
    return table;
}

}  // namespace argosy::bench

#include "bench/options.h"

#include <cctype>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "bench/collective.h"

namespace argosy::bench {
namespace {

void require_at_least(int min, int value, const char* option) {
    if (value < min) throw UserError("{} {}: it must be at least {}", option, value, min);
}

constexpr const char* kHelp =
    "Measures a collective over all ranks: mpirun -n 4 nccl-bench all_reduce -b 8 -e 128M -f 2\n"
    "\n"
    "Options, columns and bandwidths are those of nccl-tests, followed by p50 and p99 of single iterations\n"
    "unless --percentiles off leaves them out.\n"
    "Results are verified before times are shown.\n"
    "\n"
    "time    wall time of a rank from a barrier to the end of its last iteration, divided by the number of\n"
    "        iterations; the mean over the ranks\n"
    "p50/99  percentiles of single iterations, each as long as on its slowest rank; with fewer than 100\n"
    "        iterations p99 is the longest\n"
    "algbw   size / time, in 1e9 bytes a second\n"
    "busbw   algbw times 2(n-1)/n for all_reduce, 1 for broadcast and sendrecv, (n-1)/n for the rest:\n"
    "        the traffic of the busiest link, comparable between numbers of ranks\n"
    "#wrong  wrong elements over all ranks, from the verification before the measurement and, out of place,\n"
    "        from the results of the timed iterations\n"
    "beside  with --beside-products: the time while matrix products run on the rank's GPU or processor, and\n"
    "        the time of a product alone and then\n"
    "\n"
    "Over NCCL, buffers are in the memory of the rank's GPU, operations are queued on a stream as in\n"
    "nccl-tests, and the GPU's clock times single iterations.\n"
    "Over MPI, buffers are in host memory, and this program adds half, bfloat16 and fp8 itself.\n"
    "lib/tools/bench/FORMAT.md defines the JSON file.\n"
    "Exit codes: 0 done; 1 failed; 2 wrong usage; 3 a wrong result, or a bandwidth below --min-busbw; 76 a "
    "rank\n"
    "did not answer in time.\n";

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
        throw UserError("--root {}: it must be the number of a rank, or all", text);
    }
    return root;
}

/// Throws UserError unless `number`, of nccl-tests' threads or GPUs in a process, is 1.
void require_one(const std::string& number, const char* option, const char* reason) {
    if (number != "1") throw UserError("{} {} is not supported: {}", option, number, reason);
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
    if (error != std::errc() || !std::isfinite(number) || number < 0) {
        throw UserError(
            "{} {}: not a size; write bytes, or a number with K, M or G (powers of 1024), as 128M", option,
            text);
    }
    if (!known) {
        throw UserError(
            "{} {}: '{}' is not a unit; the units are K, M and G (powers of 1024), so 1T is 1024G", option,
            text, unit);
    }
    constexpr double kMaxBytes = 1e15;
    if (bytes > kMaxBytes)
        throw UserError("{} {}: {:.4g} bytes are more than the maximum, {:.4g}", option, text, bytes,
                        kMaxBytes);
    return static_cast<size_t>(bytes);
}

std::vector<size_t> sizes_of(const Sweep& sweep) {
    if (sweep.min_bytes > sweep.max_bytes) {
        throw UserError("--minbytes {} is more than --maxbytes {}", sweep.min_bytes, sweep.max_bytes);
    }
    if (sweep.factor == 1 || sweep.factor < 0) {
        throw UserError("--stepfactor {}: it must be at least 2", sweep.factor);
    }
    if (sweep.factor > 1 && sweep.min_bytes == 0) {
        throw UserError("--minbytes 0 stays 0 with --stepfactor; use 1 or more");
    }
    if (sweep.factor == 0 && sweep.step_bytes == 0 && sweep.min_bytes < sweep.max_bytes) {
        throw UserError("--stepbytes 0: the sizes never reach --maxbytes");
    }
    std::vector<size_t> sizes;
    for (size_t size = sweep.min_bytes; size <= sweep.max_bytes;
         size = sweep.factor > 1 ? size * sweep.factor : size + sweep.step_bytes) {
        sizes.push_back(size);
        // The loop ends before the next size is computed, because that size could overflow size_t.
        if (sweep.factor > 1 ? size > sweep.max_bytes / sweep.factor : size == sweep.max_bytes) break;
        constexpr size_t kMaxSizes = 100000;
        if (sizes.size() > kMaxSizes)
            throw UserError("--stepbytes {} makes more than {} sizes", sweep.step_bytes, kMaxSizes);
    }
    return sizes;
}

void check_minimum(const std::optional<double>& bandwidth) {
    if (bandwidth && !(*bandwidth > 0)) {
        throw UserError("--min-busbw {}: it must be more than 0 GB/s, because no run is below 0", *bandwidth);
    }
}

void check_timeout(double seconds) {
    if (!(seconds > 0)) throw UserError("--timeout {}: it must be more than 0 seconds", seconds);
}

void check(const Options& options, int num_ranks) {
    require_at_least(1, options.iterations, "--iters");
    require_at_least(0, options.warmup, "--warmup_iters");
    require_at_least(0, options.checks, "--check");
    require_at_least(0, options.product_multiprocessors, "--product-sms");
    if (options.product_multiprocessors > 0 && !options.beside_products)
        throw UserError("--product-sms is for products; add --beside-products");
    check_timeout(options.timeout_seconds);
    check_minimum(options.min_bus_bandwidth);
    if (options.mesh && static_cast<int64_t>(options.mesh->across) * options.mesh->within != num_ranks) {
        throw UserError("--mesh {}x{} has {} ranks, but {} were started", options.mesh->across,
                        options.mesh->within,
                        static_cast<int64_t>(options.mesh->across) * options.mesh->within, num_ranks);
    }
    if (options.root && (*options.root < 0 || *options.root >= num_ranks)) {
        throw UserError("--root {}: the ranks are 0 to {}", *options.root, num_ranks - 1);
    }
}

Options parse_values(const RawOptions& raw) {
    require_one(raw.num_threads, "-t,--nthreads",
                "each rank is one process with one thread: start more ranks");
    require_one(raw.num_gpus, "-g,--ngpus", "each rank has one device: start more ranks");
    Options options = raw.options;
    collective_named(options.collective);
    options.sweep.min_bytes = parse_size(raw.min_bytes, "-b,--minbytes");
    options.sweep.max_bytes = parse_size(raw.max_bytes, "-e,--maxbytes");
    options.sweep.step_bytes = parse_size(raw.step_bytes, "-i,--stepbytes");
    options.types = types_named(raw.type);
    options.reductions = reductions_named(raw.reduction);
    options.root = parse_root(raw.root);
    options.percentiles = raw.percentiles == "on";
    if (!raw.mesh.empty()) options.mesh = parse_mesh(raw.mesh);
    return options;
}

const char* help_text() { return kHelp; }

}  // namespace argosy::bench

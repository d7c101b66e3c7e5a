#include "bench/command_line.h"

#include <charconv>

#include "base/error.h"
#include "bench/collective.h"

namespace argosy::bench {
namespace {

constexpr const char* kHelp =
    "Measures a collective over all ranks: mpirun -n 4 nccl-bench all_reduce -b 8 -e 128M -f 2\n"
    "\n"
    "Options, columns and bandwidths are those of nccl-tests; behind its last column come p50 and p99 of "
    "single\n"
    "iterations. Results are verified before times are shown.\n"
    "\n"
    "time    a rank's wall time of all iterations, which follow one another without a pause after all ranks "
    "have met,\n"
    "        over their number; of the ranks' times --average makes one\n"
    "p50/99  of single iterations, each as long as on its slowest rank; a percentile is one of the times, so "
    "that with\n"
    "        fewer than 100 iterations p99 is the longest\n"
    "algbw   size / time, in 1e9 bytes a second; busbw: times 2(n-1)/n for all_reduce, 1 for broadcast, "
    "reduce and\n"
    "        sendrecv, (n-1)/n for the rest: what the busiest link carries, comparable over n\n"
    "#wrong  elements that are not what they must be, over all ranks, of a verification before the time is "
    "taken and,\n"
    "        out of place, of what the timed iterations left\n"
    "\n"
    "Over NCCL, buffers are memory of the rank's GPU, operations are launched one behind the other as "
    "nccl-tests "
    "does, and\n"
    "single iterations are timed by the GPU's clock; avg may differ by the roundings that NCCL makes on its "
    "way.\n"
    "Over MPI, buffers are host memory; alltoall, scatter and the like are MPI's own, avg is a sum and a "
    "division, and\n"
    "half, bfloat16 and fp8 are added up by this program. FORMAT.md of lib/bench defines JSON and CSV.\n"
    "Ends with 0; 1 failed; 2 wrong usage; 3 a wrong result, or less than --min-busbw; 76 a rank that stays "
    "away.\n";

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

}  // namespace

const std::vector<RefusedOption>& refused_options() {
    static const std::vector<RefusedOption> table = {
        {"-t,--nthreads", "1", "every rank is a process of its own: start more ranks"},
        {"-g,--ngpus", "1", "every rank has one device: start more ranks"},
        {"-p,--parallel_init", "0", "every rank is a process, so they always start at the same time"},
        {"-y,--stream_null", "0", "it has NCCL use CUDA's default stream; here it has a stream of its own"},
        {"-G,--cudagraph", "0", "it replays CUDA graphs; here each operation is launched by its own call"},
        {"-R,--local_register", "0", "it registers buffers with NCCL; here they are plain memory of the GPU"},
        {"-x,--cta_policy", "0", "it sets how NCCL takes multiprocessors of a GPU"},
        {"-D,--device_implementation", "0", "it picks NCCL's kernels of the device side"},
        {"-V,--device_cta_count", "16", "it sets the size of NCCL's kernels of the device side"},
        {"-M,--memory", "0", "it reports the GPU memory that NCCL takes"},
        {"-u,--unalign", "0", "buffers begin where their memory does here, always aligned"},
    };
    return table;
}

RawOptions::RawOptions() {
    for (const RefusedOption& one : refused_options()) refused.emplace_back(one.neutral);
}

Options meaning_of(const RawOptions& words) {
    for (size_t i = 0; i < words.refused.size(); ++i) {
        const RefusedOption& one = refused_options()[i];
        if (words.refused[i] != one.neutral)
            throw UserError("{} {}: {}", one.names, words.refused[i], one.reason);
    }
    Options options = words.options;
    collective_named(options.collective);
    options.sweep.min_bytes = parse_size(words.min_bytes, "--minbytes");
    options.sweep.max_bytes = parse_size(words.max_bytes, "--maxbytes");
    options.sweep.step_bytes = parse_size(words.step_bytes, "--stepbytes");
    options.types = types_named(words.type);
    options.operations = operations_named(words.operation);
    options.root = parse_root(words.root);
    options.across_ranks = parse_across_ranks(words.across_ranks);
    if (!words.mesh.empty()) options.mesh = parse_mesh(words.mesh);
    return options;
}

const char* help_text() { return kHelp; }

std::string collective_names() {
    std::string names;
    for (const Collective& one : collectives()) names += (names.empty() ? "" : ", ") + std::string(one.name);
    return names;
}

}  // namespace argosy::bench

// Measures collectives over all ranks, with the options, columns and bandwidths of nccl-tests.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <deque>
#include <optional>

#include "base/environment.h"
#include "base/error.h"
#include "base/partial_file.h"
#include "base/version.h"
#include "bench/benchmark.h"
#include "bench/collective.h"
#include "bench/report.h"
#include "mpi/program.h"

namespace argosy {
namespace {

constexpr const char* kAbout =
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
    "Over MPI, buffers are host memory; alltoall, scatter and the like are MPI's own, avg is a sum and a "
    "division, and\n"
    "half, bfloat16 and fp8 are added up by this program. FORMAT.md of lib/bench defines JSON and CSV.\n"
    "Ends with 0; 1 failed; 2 wrong usage; 3 a wrong result, or less than --min-busbw; 76 a rank that stays "
    "away.\n";

/// What the options are before they mean something.
struct CommandLine {
    CLI::App app{kAbout, "nccl-bench"};
    bench::Options options;
    std::string min_bytes = "32M", max_bytes = "32M", step_bytes = "1M", type = "float", operation = "sum";
    std::string root = "0", mesh;
    int across_ranks = 1;
    std::deque<std::string> refused;  // one for each refused option, in their order
};

void add_what(CommandLine& line) {
    CLI::App& app = line.app;
    std::string names;
    for (const auto& one : bench::collectives()) names += (names.empty() ? "" : ", ") + std::string(one.name);
    app.add_option("collective", line.options.collective, names)->required();
    app.add_option("-b,--minbytes", line.min_bytes, "smallest size; K, M, G are powers of 1024")
        ->capture_default_str();
    app.add_option("-e,--maxbytes", line.max_bytes, "largest size")->capture_default_str();
    app.add_option("-i,--stepbytes", line.step_bytes, "from size to size")->capture_default_str();
    app.add_option("-f,--stepfactor", line.options.sweep.factor, "from size to size, instead of --stepbytes");
    app.add_option("-d,--datatype", line.type,
                   "int8 to uint64, half, float, double, bfloat16, fp8_e4m3, fp8_e5m2, all")
        ->capture_default_str();
    app.add_option("-o,--op", line.operation, "sum, prod, min, max, avg, all")->capture_default_str();
    app.add_option("-r,--root", line.root, "a rank of each group, or all: each in turn")
        ->capture_default_str();
    app.add_option("--mesh", line.mesh,
                   "NODESxRANKS, as 4x8: within the rows, across them and over all, groups at once");
    app.add_option("--backend", line.options.backend,
                   "mpi, or nccl where it is built in; default: the better one");
}

void add_how(CommandLine& line) {
    CLI::App& app = line.app;
    bench::Options& options = line.options;
    const auto number = [&](const char* names, auto& value, const char* help) {
        app.add_option(names, value, help)->capture_default_str();
    };
    number("-n,--iters", options.iterations, "iterations that are timed");
    number("-m,--agg_iters", options.aggregated,
           "operations at once, on buffers of their own, in one iteration");
    number("-w,--warmup_iters", options.warmup, "iterations before, at each size");
    number("-N,--run_cycles", options.cycles, "passes over all sizes; 0: without end");
    number("-c,--check", options.checks, "verifications of each result; 0: none");
    number("-z,--blocking", options.blocking_calls, "1: MPI's blocking calls, which --timeout cannot end");
    number("-T,--timeout", options.timeout_seconds, "seconds to wait for a rank before it is named");
    number("-C,--report_cputime", options.time_to_start,
           "1: show the time of the call that starts an operation");
    number("-S,--report_timestamps", options.timestamps, "1: when each row was done");
    number("-a,--average", line.across_ranks, "of the ranks' times: 0 rank 0's, 1 mean, 2 min, 3 max");
    number("-I,--per_iter_timing", options.per_iteration,
           "1: i_min, i_max, i_p99, i_cv% of single iterations");
    number("-K,--per_iter_skip", options.skipped, "first iterations that do not count in p50, p99 and -I");
    app.add_option("--min-busbw", options.min_bus_bandwidth,
                   "GB/s that the average must reach, else exit with 3");
    app.add_option("-J,--output_file,--json", options.json,
                   "a JSON file; one that exists is replaced at the end");
    app.add_option("--csv", options.csv, "a CSV file, likewise");
    for (const bench::RefusedOption& one : bench::refused_options()) {
        app.add_option(one.names, line.refused.emplace_back(one.neutral))->group("");
    }
}

void finish(CommandLine& line) {
    bench::Options& options = line.options;
    for (size_t i = 0; i < line.refused.size(); ++i) {
        const bench::RefusedOption& one = bench::refused_options()[i];
        if (line.refused[i] != one.neutral)
            throw UserError("{} {}: {}", one.names, line.refused[i], one.reason);
    }
    options.sweep.min_bytes = bench::parse_size(line.min_bytes, "--minbytes");
    options.sweep.max_bytes = bench::parse_size(line.max_bytes, "--maxbytes");
    options.sweep.step_bytes = bench::parse_size(line.step_bytes, "--stepbytes");
    options.types = bench::types_named(line.type);
    options.operations = bench::operations_named(line.operation);
    options.root = bench::parse_root(line.root);
    options.across_ranks = bench::parse_across_ranks(line.across_ranks);
    if (!line.mesh.empty()) options.mesh = bench::parse_mesh(line.mesh);
    bench::collective_named(options.collective);
}

void print(const std::string& text) {
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
        throw RunError("cannot write to stdout");
}

ExitCode run(int argc, char** argv, const mpi::Comm& world) {
    CommandLine line;
    line.app.set_version_flag("--version", version());
    add_what(line);
    add_how(line);
    try {
        line.app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() != 0) throw UserError("{}", error.what());
        if (world.rank() == 0) line.app.exit(error);  // --help and --version come this way
        return ExitCode::Done;
    }
    finish(line);
    const bench::Options& options = line.options;
    check(options, world.size());
    const std::string backend = bench::backend_of(options);
    std::optional<PartialFile> json, csv;  // where they cannot be written, nothing is measured
    if (world.rank() == 0 && !options.json.empty()) json.emplace(options.json);
    if (world.rank() == 0 && !options.csv.empty()) csv.emplace(options.csv);

    const bench::RollCall roll(world, bench::exchange_rank_info(world), options.timeout_seconds);
    const bench::Results results = bench::run_benchmark(world, roll, options, print);
    const bench::Setting setting{{argv, argv + argc}, backend, mpi::library(), roll.ranks()};
    const auto write = [](auto& file, const std::string& text) {
        if (!file) return;
        file->append(text);
        file->commit();
    };
    write(json, bench::json_report(results, options, setting));
    write(csv, bench::csv_report(results));
    return results.passed(options) ? ExitCode::Done : ExitCode::CheckFailed;
}

}  // namespace
}  // namespace argosy

int main(int argc, char** argv) {
    return argosy::mpi::run_program("nccl-bench", &argc, &argv, [&](const auto& world, const auto&) {
        return argosy::run(argc, argv, world);
    });
}

// Measures collectives over all ranks, with the options, columns and bandwidths of nccl-tests.
#include <CLI/CLI.hpp>
#include <optional>

#include "base/output.h"
#include "base/program.h"
#include "bench/benchmark.h"
#include "bench/collective.h"
#include "bench/options.h"
#include "command_line.h"
#include "mpi/program.h"

namespace argosy {
namespace {

void add_what_to_measure(CLI::App& app, bench::RawOptions& raw) {
    app.add_option("collective", raw.options.collective, bench::collective_names())->required();
    app.add_option("-b,--minbytes", raw.min_bytes, "smallest size; K, M, G are powers of 1024")
        ->capture_default_str();
    app.add_option("-e,--maxbytes", raw.max_bytes, "largest size")->capture_default_str();
    app.add_option("-i,--stepbytes", raw.step_bytes, "step between sizes, in bytes")->capture_default_str();
    app.add_option("-f,--stepfactor", raw.options.sweep.factor, "factor between sizes; replaces --stepbytes");
    app.add_option("-d,--datatype", raw.type,
                   "int8 to uint64, half, float, double, bfloat16, fp8_e4m3, fp8_e5m2, all")
        ->capture_default_str();
    app.add_option("-o,--op", raw.reduction, "sum, max, all")->capture_default_str();
    app.add_option("-r,--root", raw.root, "root rank of each group, or all: every rank in turn")
        ->capture_default_str();
    app.add_option("--mesh", raw.mesh,
                   "NODESxRANKS, e.g. 4x8: also measure groups of the ranks of each node and groups across "
                   "nodes; groups run at the same time");
    app.add_option("--backend", raw.options.backend, bench::kBackendHelp);
}

void add_how_to_measure(CLI::App& app, bench::RawOptions& raw) {
    bench::Options& options = raw.options;
    const auto number = [&](const char* names, auto& value, const char* help) {
        app.add_option(names, value, help)->capture_default_str();
    };
    number("-n,--iters", options.iterations, "timed iterations");
    number("-w,--warmup_iters", options.warmup, "untimed iterations before the timed ones, at each size");
    number("-c,--check", options.checks, "verifications of each result; 0: none");
    number("-T,--timeout", options.timeout_seconds, "seconds to wait for a rank before an error names it");
    app.add_option("--percentiles", raw.percentiles,
                   "off: no columns after those of nccl-tests, for programs that read its output")
        ->check(CLI::IsMember({"on", "off"}))
        ->capture_default_str();
    app.add_flag("--beside-products", options.beside_products,
                 "time each size beside matrix products, too, and the products alone and beside it");
    number("--product-sms", options.product_multiprocessors,
           "SMs that these products may use of a GPU (cuBLASLt's target; untried); 0: all");
    app.add_option("--min-busbw", options.min_bus_bandwidth,
                   "minimum average bus bandwidth in GB/s; below it the exit code is 3");
    app.add_option("-J,--output_file,--json", options.json,
                   "JSON file, written at the end; replaces only an earlier report. -: stdout, and\nthe "
                   "table goes to stderr");
    app.add_option("-t,--nthreads", raw.num_threads)->group("");
    app.add_option("-g,--ngpus", raw.num_gpus)->group("");
}

ExitCode measure(int argc, char** argv, const mpi::Comm& world) {
    CLI::App app{bench::help_text(), "nccl-bench"};
    bench::RawOptions raw;
    add_what_to_measure(app, raw);
    add_how_to_measure(app, raw);
    if (!parse_options(app, argc, argv, world.rank() == 0)) return ExitCode::Done;
    const bench::Options options = bench::parse_values(raw);
    check(options, world.size());
    std::optional<ResultFile> json;  // opened before measuring, to report a bad path early
    if (world.rank() == 0 && !options.json.empty())
        json.emplace(options.json, is_json_of_format(bench::kJsonMark));

    // Standard output has one thing, so the table goes to stderr if the report takes stdout.
    const bool table_on_stdout = !is_standard_stream(options.json);
    const auto print_table = [&](const std::string& text) {
        print_text(text, table_on_stdout ? stdout : stderr);
    };

    const bench::ControlChannel control(world, options.timeout_seconds);
    const bench::Results results = bench::run_benchmark(world, control, options, print_table);
    const bench::Setting setting{{argv, argv + argc}, control.ranks()};
    if (json) json->write(bench::json_report(results, options, setting));
    return results.passed(options) ? ExitCode::Done : ExitCode::CheckFailed;
}

}  // namespace
}  // namespace argosy

int main(int argc, char** argv) {
    return argosy::mpi::run_program("nccl-bench", &argc, &argv, [&](const auto& world, const auto&) {
        return argosy::measure(argc, argv, world);
    });
}

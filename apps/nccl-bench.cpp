// Measures collectives over all ranks, with the options, columns and bandwidths of nccl-tests; or checks the
// nodes of a job before it starts.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "base/partial_file.h"
#include "base/program.h"
#include "bench/benchmark.h"
#include "bench/command_line.h"
#include "bench/report.h"
#include "config/parse.h"
#include "mpi/program.h"
#include "ops/tensor_thread.h"
#include "parallel/traffic.h"
#include "preflight/preflight.h"
#include "setup/element_types.h"
#include "setup/setup.h"

namespace argosy {
namespace {

constexpr const char* kBackends = "nccl or mpi; default: nccl if it is built in and every rank sees a GPU";

void add_what(CLI::App& app, bench::RawOptions& words) {
    app.add_option("collective", words.options.collective, bench::collective_names())->required();
    app.add_option("-b,--minbytes", words.min_bytes, "smallest size; K, M, G are powers of 1024")
        ->capture_default_str();
    app.add_option("-e,--maxbytes", words.max_bytes, "largest size")->capture_default_str();
    app.add_option("-i,--stepbytes", words.step_bytes, "step between sizes, in bytes")->capture_default_str();
    app.add_option("-f,--stepfactor", words.options.sweep.factor,
                   "factor between sizes; replaces --stepbytes");
    app.add_option("-d,--datatype", words.type,
                   "int8 to uint64, half, float, double, bfloat16, fp8_e4m3, fp8_e5m2, all")
        ->capture_default_str();
    app.add_option("-o,--op", words.operation, "sum, prod, min, max, avg, all")->capture_default_str();
    app.add_option("-r,--root", words.root, "root rank of each group, or all: every rank in turn")
        ->capture_default_str();
    app.add_option("--mesh", words.mesh,
                   "NODESxRANKS, as 4x8: measure within rows, across rows and over all ranks; groups run at "
                   "the same time");
    app.add_option("--backend", words.options.backend, kBackends);
}

void add_how(CLI::App& app, bench::RawOptions& words) {
    bench::Options& options = words.options;
    const auto number = [&](const char* names, auto& value, const char* help) {
        app.add_option(names, value, help)->capture_default_str();
    };
    number("-n,--iters", options.iterations, "timed iterations");
    number("-m,--agg_iters", options.aggregated,
           "operations per iteration, at the same time, each on its own buffers");
    number("-w,--warmup_iters", options.warmup, "untimed iterations before them, at each size");
    number("-N,--run_cycles", options.cycles, "passes over all sizes; 0: no end");
    number("-c,--check", options.checks, "verifications of each result; 0: none");
    number("-z,--blocking", options.blocking_calls,
           "1: wait for each operation; over MPI with its blocking calls, which --timeout cannot end");
    number("-T,--timeout", options.timeout_seconds, "seconds to wait for a rank before an error names it");
    number("-C,--report_cputime", options.time_to_start,
           "1: show the time of the call that starts an operation");
    number("-S,--report_timestamps", options.timestamps, "1: show when each row ended");
    number("-a,--average", words.across_ranks,
           "time shown: 0: rank 0's, 1: mean over ranks, 2: minimum, 3: maximum");
    number("-I,--per_iter_timing", options.per_iteration,
           "1: show i_min, i_max, i_p99, i_cv% of single iterations");
    number("-K,--per_iter_skip", options.skipped, "first iterations that p50, p99 and -I ignore");
    app.add_option("--min-busbw", options.min_bus_bandwidth,
                   "minimum average bus bandwidth in GB/s; below it the exit code is 3");
    app.add_option("-J,--output_file,--json", options.json,
                   "JSON file, written at the end; replaces only an earlier report");
    app.add_option("--csv", options.csv, "CSV file, written at the end; replaces only an earlier report");
    for (size_t i = 0; i < words.refused.size(); ++i) {
        app.add_option(bench::refused_options()[i].names, words.refused[i])->group("");
    }
}

constexpr const char* kPreflightHelp =
    "Checks the nodes of a job before it starts, on as many ranks as it will have:\n"
    "  mpirun -n 16 nccl-bench --preflight --config F.toml [--section.key value ...]\n"
    "\n"
    "First checks the settings and hardware of every node. Then measures matrix products on every rank and\n"
    "the collectives of a step of this configuration, at their sizes and over its mesh. Reports each wrong\n"
    "setting and each part that is slower than its peers, with the remedy (lib/preflight/README.md lists "
    "the\n"
    "checks).\n"
    "Exit codes: 0 PASS or WARN; 1 failed; 2 wrong usage; 3 FAIL; 76 a rank did not arrive in time.\n";

struct PreflightWords {
    std::filesystem::path json;
    std::string config;
    preflight::SpeedOptions options;
};

void add_preflight(CLI::App& app, PreflightWords& words) {
    app.add_flag("--preflight")->description("run the pre-flight");
    app.add_option("--config", words.config, "the job's configuration; options --section.key override it")
        ->required();
    app.add_option("--json,-J,--output_file", words.json,
                   "JSON file for the report (lib/preflight/FORMAT.md)");
    app.add_option("--backend", words.options.backend, kBackends);
    app.add_option("-T,--timeout", words.options.timeout_seconds,
                   "seconds to wait for a rank before an error names it")
        ->capture_default_str();
    app.allow_extras();
}

preflight::Job job_of(const config::JobConfig& config, int num_ranks) {
    const model::ModelSpec spec = setup::choose_model(config.model);
    const layout::MeshShape mesh = layout::resolve(setup::mesh_request(config.parallelism), num_ranks);
    const train::TrainerOptions options = setup::trainer_options(config, spec, mesh);
    return {.title = fmt::format("{} on {} {} ({})", setup::model_title(config.model, spec), num_ranks,
                                 num_ranks == 1 ? "rank" : "ranks", mesh.name()),
            .mesh = mesh,
            .traffic =
                parallel::job_traffic(parallel::place(spec, mesh, options.stage_layers), mesh,
                                      options.precision, spec.dim, options.microbatch_size * options.seq_len),
            .dump_folder = config.job.dump_folder};
}

void print(const std::string& text) {
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
        throw RunError("cannot write to stdout");
}

/// Returns false for --help and --version, after which nothing is left to do.
bool parse(CLI::App& app, int argc, char** argv, const mpi::Comm& world) {
    app.set_version_flag("--version", version());
    try {
        app.parse(argc, argv);
        return true;
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() != 0) throw UserError("{}", error.what());
        if (world.rank() == 0) app.exit(error);
        return false;
    }
}

ExitCode check_nodes(int argc, char** argv, const mpi::Comm& world) {
    CLI::App app{kPreflightHelp, "nccl-bench --preflight"};
    PreflightWords words;
    add_preflight(app, words);
    if (!parse(app, argc, argv, world)) return ExitCode::Done;
    std::vector<std::string> configuration = app.remaining();
    configuration.insert(configuration.begin(), {"--config", words.config});
    const config::CommandLine command = config::parse_command_line(configuration);
    bench::check_timeout(words.options.timeout_seconds);
    const preflight::Job job = job_of(command.config, world.size());
    words.options.type = setup::scalar_type(command.config.training.mixed_precision_param);
    std::optional<PartialFile> json;
    if (world.rank() == 0 && !words.json.empty())
        json.emplace(words.json, is_json_of_format(preflight::kReportMark));

    const ops::TensorThread tensors(setup::operation_path(command.config));
    const bench::ControlChannel control(world, words.options.timeout_seconds);
    const preflight::Report report = preflight::run_preflight(world, control, job, words.options);
    if (world.rank() == 0) print(text_report(report));
    if (json) {
        json->append(json_report(report));
        json->commit();
    }
    return report.severity() == preflight::Severity::Fail ? ExitCode::CheckFailed : ExitCode::Done;
}

ExitCode measure(int argc, char** argv, const mpi::Comm& world) {
    CLI::App app{bench::help_text(), "nccl-bench"};
    app.add_flag("--preflight")
        ->description("check the nodes of a job instead; see nccl-bench --preflight --help");
    bench::RawOptions words;
    add_what(app, words);
    add_how(app, words);
    if (!parse(app, argc, argv, world)) return ExitCode::Done;
    const bench::Options options = bench::meaning_of(words);
    check(options, world.size());
    std::optional<PartialFile> json, csv;  // opened first: if they cannot be written, nothing is measured
    if (world.rank() == 0 && !options.json.empty())
        json.emplace(options.json, is_json_of_format(bench::kJsonMark));
    if (world.rank() == 0 && !options.csv.empty()) csv.emplace(options.csv, begins_with(bench::kCsvMark));

    const bench::ControlChannel control(world, options.timeout_seconds);
    const bench::Results results = bench::run_benchmark(world, control, options, print);
    const bench::Setting setting{{argv, argv + argc}, control.ranks()};
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
        const bool preflight = std::any_of(
            argv, argv + argc, [](const char* word) { return std::string_view(word) == "--preflight"; });
        return preflight ? argosy::check_nodes(argc, argv, world) : argosy::measure(argc, argv, world);
    });
}

// Checks the nodes of a job before the job starts: first settings and hardware, then the speed of matrix
// products and of the collectives that a training step of the job runs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "base/output.h"
#include "base/program.h"
#include "base/time_limit.h"
#include "bench/control_channel.h"
#include "bench/options.h"
#include "command_line.h"
#include "config/print.h"
#include "mpi/agreement.h"
#include "mpi/program.h"
#include "ops/ops_context.h"
#include "plan/gpus.h"
#include "plan/plan.h"
#include "preflight/history.h"
#include "preflight/preflight.h"
#include "setup/number_types.h"
#include "setup/options.h"
#include "setup/process.h"
#include "setup/run_inputs.h"
#include "train/dry_step.h"

namespace argosy {
namespace {

constexpr const char* kHelp =
    "Checks the nodes of a job before it starts, on as many ranks as it will have:\n"
    "  mpirun -n 16 preflight --config F.toml [--section.key value ...]\n"
    "\n"
    "First checks the settings and hardware of every node. Then measures matrix products on every rank and\n"
    "the collectives of a step of this configuration, at their sizes and over its mesh, and keeps every\n"
    "device busy for some seconds (--sustain). Reports each wrong setting, each wrong result, and each part\n"
    "that is slower than its peers, or on GPUs than a plan assumes, with the remedy (the checks are in\n"
    "lib/tools/preflight/CHECKS.md), and what could not be checked. If CUDA shows some ranks no GPU of "
    "their\n"
    "own, no speed is measured.\n"
    "Exit codes: 0 PASS or WARN; 1 failed; 2 wrong usage; 3 FAIL; 76 a rank did not arrive in time.\n";

struct Arguments {
    std::filesystem::path json, prometheus;
    std::string config, links;
    std::optional<std::string> history;  // none: not kept; empty: the default folder
    std::vector<std::string> only_warn;
    std::vector<int64_t> variables;  // none, or the nodes of a job and the ranks of each
    preflight::SpeedOptions options;
};

void add_options(CLI::App& app, Arguments& arguments) {
    app.add_option("--config", arguments.config,
                   "the job's configuration; options --section.key override it");
    app.add_option(
           "--variables", arguments.variables,
           "checks only the environment of this shell, from which a job on NODES nodes with RANKS ranks\n"
           "each takes its variables: a line for each one that would slow the job down or break it")
        ->delimiter(',')
        ->expected(2)
        ->check(at_least_one())
        ->option_text("NODES,RANKS");
    app.add_option(
        "--json,-J,--output_file", arguments.json,
        "JSON file for the report (lib/tools/preflight/FORMAT.md). -: stdout, and the text goes\nto stderr");
    app.add_option("--prometheus", arguments.prometheus,
                   "text file for Prometheus's node_exporter, rewritten in each run (FORMAT.md)");
    app.add_option_function<std::string>(
           "--history", [&](const std::string& folder) { arguments.history = folder; },
           "keeps the speeds of each node in this folder, and compares a node with its own past.\n"
           "Without FOLDER: job.dump_folder/node_history")
        ->option_text("[FOLDER]")
        ->expected(0, 1);
    app.add_option("--backend", arguments.options.backend, bench::kBackendHelp);
    app.add_option("--links", arguments.links,
                   "the speeds of links (reports of nccl-bench) that a plan assumes on GPUs in place of the\n"
                   "datasheet's, as in pretrain --plan --links")
        ->option_text("F.json,G.json");
    app.add_option("-T,--timeout", arguments.options.timeout_seconds,
                   "seconds to wait for a rank before an error names it")
        ->capture_default_str();
    app.add_option("--sustain", arguments.options.sustain_seconds,
                   "seconds for which each rank multiplies matrices, to find devices that are slow or wrong\n"
                   "under load: 10 on a GPU, 0.2 on a processor. 0: not at all")
        ->check(not_negative());
    app.add_option("--deadline", arguments.options.deadline_seconds,
                   "seconds after which no measurement begins: a WARN lists those that were not done.\n0: "
                   "only settings and hardware")
        ->check(not_negative())
        ->capture_default_str();
    app.add_option("--only-warn", arguments.only_warn,
                   "checks whose FAIL counts as a WARN, by their names in the report: \"GPU PCIe link,MIG\"")
        ->delimiter(',');
    app.allow_extras();
}

/// The launches between ranks in a training step, recorded without data on one rank of each pipeline stage:
/// the ranks of one stage differ only in padding.
std::vector<preflight::StepLaunches> recorded_step(const train::TrainerOptions& options,
                                                   const layout::MeshShape& mesh) {
    std::vector<preflight::StepLaunches> step;
    for (const int rank : mesh.group(0, layout::Axis::Pipeline)) {
        comm::Recording recording({.launched = [&](const comm::Recording::Launch& launch) {
            preflight::add_launch(step, launch.ops, mesh);
        }});
        train::record_step(options, mesh, rank, recording);
    }
    return step;
}

/// The links that `pretrain --plan --links` assumes between such GPUs.
std::optional<preflight::PlannedLinks> planned_links(const config::JobConfig& config, int num_ranks,
                                                     const std::string& links, const std::string& device,
                                                     int ranks_per_node) {
    const std::optional<std::string> name = plan::gpu_of_device(device);
    if (!name) return std::nullopt;
    const plan::Machine machine = plan::choose_machine(
        config, {.num_ranks = num_ranks, .device = *name, .gpus_per_node = ranks_per_node, .links = links});
    return preflight::PlannedLinks{*name, [machine](auto launch, const std::vector<int>& ranks) {
                                       return machine.seconds(launch, ranks);
                                   }};
}

/// Throws UserError for files of --links that no plan of this job can use, before minutes are measured.
void check_links(const std::string& links, int num_ranks, int ranks_per_node) {
    plan::Machine gpu{.name = "the GPUs of a job", .is_gpu = true, .ranks_per_node = ranks_per_node};
    plan::take_links(gpu, links, num_ranks);
}

preflight::Job job_of(const config::JobConfig& config, int num_ranks, const std::string& links) {
    const model::ModelSpec spec = setup::choose_model(config.model);
    const layout::MeshShape mesh = layout::resolve(setup::mesh_request(config), num_ranks);
    return {.title = fmt::format("{} on {} {} ({})", setup::model_title(config.model, spec), num_ranks,
                                 num_ranks == 1 ? "rank" : "ranks", mesh.name()),
            .mesh = mesh,
            .step = recorded_step(setup::trainer_options(config, spec, mesh), mesh),
            .dump_folder = config.job.dump_folder,
            .planned_links = [config, num_ranks, links](const std::string& device, int ranks_per_node) {
                return planned_links(config, num_ranks, links, device, ranks_per_node);
            }};
}

/// Files that take longer to open, read or write are left out, because a file system that hangs must not
/// delay the job.
constexpr TimeLimit kFileLimit{.part_seconds = 10, .all_seconds = 30};

/// COLLECTIVE: compares what pretrain compares between ranks before it trains, without the executable, which
/// is a fact of the pre-flight's own. A rank reads its files within a limit. If one rank does not, no rank
/// compares contents of files, because slow files are not different ones. Ranks open token files only if they
/// have other paths, or do not all find them: thousands of ranks would overload the file system.
void compare_inputs(const mpi::Comm& world, const bench::ControlChannel& control, double limit_seconds,
                    const config::JobConfig& config, preflight::Job& job) {
    using Facts = std::vector<mpi::Fact>;
    const auto read_in_time = [&](const std::function<Facts()>& read) {
        const auto found = std::make_shared<Facts>();
        const bool late =
            parts_within({limit_seconds, limit_seconds}, [=](const auto&) { *found = read(); }).has_value();
        for (int rank = 0; const int is_late : control.exchange(int{late})) {
            if (is_late) job.late_ranks.push_back(rank);
            ++rank;
        }
        return job.late_ranks.empty() ? *found : Facts();
    };
    Facts facts = setup::setting_facts(config);
    const auto add = [&](const Facts& more) { facts.insert(facts.end(), more.begin(), more.end()); };
    add(read_in_time([config] { return setup::file_facts(config); }));
    const Facts paths = read_in_time([config] { return setup::data_path_facts(config); });
    if (!mpi::find_differences(world, paths).empty())
        add(read_in_time([config] { return setup::data_facts(config, setup::choose_model(config.model)); }));
    job.differences = mpi::find_differences(world, facts);
}

/// The files of --json, --prometheus or --history. Files that exceed kFileLimit are left out with a warning.
struct Files {
    std::string option;
    std::filesystem::path path;  // the file, or the folder of the files
    size_t number = 1;
};

using FileWork = std::function<void(const std::function<void()>& file_done)>;

/// Runs `work` and returns whether it ended within kFileLimit. If not, logs a warning. Passes on exceptions
/// of `work`.
bool done_in_time(const Files& files, FileWork work) {
    const std::optional<size_t> num_done = parts_within(kFileLimit, std::move(work));
    if (!num_done) return true;
    spdlog::warn(
        "pre-flight: {} is left out: '{}' took more than {} s for a file, or {} s in all ({} of {} files "
        "done). Check its file system, or name another place",
        files.option, files.path.string(), kFileLimit.part_seconds, kFileLimit.all_seconds, *num_done,
        files.number);
    return false;
}

/// Runs `work` like done_in_time(), but logs a warning if it throws.
bool done_or_warned(const Files& files, FileWork work) {
    try {
        return done_in_time(files, std::move(work));
    } catch (const std::exception& error) {
        spdlog::warn("pre-flight: {} is incomplete: {}", files.option, error.what());
    }
    return false;
}

/// Answers --variables.
void print_slow_variables(int64_t num_nodes, int64_t ranks_per_node) {
    const SlowSetting::Ranks ranks{.several_a_node = ranks_per_node > 1,
                                   .fabric_between_nodes = num_nodes > 1};
    const auto variables = communication_variables();
    for (const SlowSetting& setting : slow_settings()) {
        const std::string* value = setting.matters(ranks) ? setting.harmful_value(variables) : nullptr;
        if (value) {
            print_text(fmt::format("{}={}: {}; {}\n", setting.variable, *value, setting.why, setting.remedy),
                       stdout);
        }
    }
}

/// Opens the file of an option. Returns null for an empty path, and after a warning if the file system hangs.
/// Throws UserError if the path names another program's file, which must not be overwritten.
std::shared_ptr<ResultFile> open_result(const Files& file, const IsOwn& is_own) {
    if (file.path.empty()) return nullptr;
    const auto opened = std::make_shared<std::unique_ptr<ResultFile>>();
    const bool in_time = done_in_time(file, [path = file.path, is_own, opened](const auto&) {
        *opened = std::make_unique<ResultFile>(path, is_own);
    });
    return in_time ? std::move(*opened) : nullptr;
}

/// Compares the nodes with their history and adds the findings to the report. Returns whether the history
/// could be read.
bool add_history(const Files& history, const std::shared_ptr<preflight::Report>& report) {
    const auto found = std::make_shared<std::vector<preflight::Finding>>();
    const bool was_read =
        done_or_warned(history, [folder = history.path, report, found](const auto& file_done) {
            *found = preflight::compare_with_history(folder, *report, file_done);
        });
    if (was_read) preflight::append(std::move(*found), report->findings);  // WARN only, so the order stays
    return was_read;
}

ExitCode check_nodes(int argc, char** argv, const mpi::Comm& world) {
    CLI::App app{kHelp, "preflight"};
    Arguments arguments;
    add_options(app, arguments);
    if (!parse_options(app, argc, argv, world.rank() == 0, config::completed_keys())) return ExitCode::Done;
    if (!arguments.variables.empty()) {
        if (world.rank() == 0) print_slow_variables(arguments.variables[0], arguments.variables[1]);
        return ExitCode::Done;
    }
    if (arguments.config.empty()) throw UserError("--config is required");
    std::vector<std::string> configuration = app.remaining();
    configuration.insert(configuration.begin(), {"--config", arguments.config});
    const config::CommandLine command = setup::same_command_line(world, configuration);
    bench::check_timeout(arguments.options.timeout_seconds);
    const ops::OpsContext tensors(setup::operation_path(command.config));
    preflight::Job job = job_of(command.config, world.size(), arguments.links);
    const int ranks_per_node = world.place_on_node().num_ranks;
    if (world.rank() == 0 && !arguments.links.empty())
        check_links(arguments.links, world.size(), ranks_per_node);
    job.only_warn = arguments.only_warn;
    arguments.options.type = setup::scalar_type(command.config.training.mixed_precision_param);
    Files history{"--history", arguments.history.value_or("").empty()
                                   ? job.dump_folder / "node_history"
                                   : std::filesystem::path(*arguments.history)};
    const Files json_file{"--json", arguments.json}, prometheus_file{"--prometheus", arguments.prometheus};
    std::shared_ptr<ResultFile> json, prometheus;
    if (world.rank() == 0) {
        json = open_result(json_file, is_json_of_format(preflight::kReportMark));
        prometheus = open_result(prometheus_file, begins_with(preflight::kPrometheusMark));
    }

    const bench::ControlChannel control(world, arguments.options.timeout_seconds);
    compare_inputs(world, control, std::min(kFileLimit.all_seconds, arguments.options.timeout_seconds / 2),
                   command.config, job);
    const auto report =
        std::make_shared<preflight::Report>(preflight::run_preflight(world, control, job, arguments.options));
    // Rank 0 sends the severity before it writes files, which may take time.
    const preflight::Severity severity = control.exchange(report->severity()).front();
    history.number = report->nodes.size();
    const bool keeps_history =
        world.rank() == 0 && arguments.history && !report->why_not_compared && add_history(history, report);
    if (world.rank() == 0)
        print_text(text_report(*report), is_standard_stream(arguments.json) ? stderr : stdout);
    if (json) done_in_time(json_file, [json, report](const auto&) { json->write(json_report(*report)); });
    if (prometheus) {
        done_or_warned(prometheus_file,
                       [prometheus, report](const auto&) { prometheus->write(prometheus_report(*report)); });
    }
    if (keeps_history) {
        done_or_warned(history, [folder = history.path, report](const auto& file_done) {
            append_history(folder, *report, file_done);
        });
    }
    return severity == preflight::Severity::Fail ? ExitCode::CheckFailed : ExitCode::Done;
}

}  // namespace
}  // namespace argosy

int main(int argc, char** argv) {
    using namespace argosy;
    return end_process(mpi::run_program("preflight", &argc, &argv, [&](const auto& world, const auto&) {
        return check_nodes(argc, argv, world);
    }));
}

// Trains a model: configuration -> mesh -> data -> model -> steps -> metrics and checkpoints.
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/output.h"
#include "base/program.h"
#include "base/raw_file.h"
#include "config/arrival.h"
#include "config/parse.h"
#include "config/print.h"
#include "data/loader.h"
#include "eval/training_evaluation.h"
#include "interop/model_source.h"
#include "mpi/program.h"
#include "observe/baseline.h"
#include "observe/diagnosis.h"
#include "observe/metrics_writer.h"
#include "observe/skipped_updates.h"
#include "ops/ops_context.h"
#include "plan/overlap.h"
#include "plan/plan.h"
#include "plan/plan_text.h"
#include "plan/search.h"
#include "plan/training_memory.h"
#include "resume/checkpointer.h"
#include "resume/restore.h"
#include "resume/run_lock.h"
#include "resume/run_state.h"
#include "setup/graphs.h"
#include "setup/number_types.h"
#include "setup/options.h"
#include "setup/process.h"
#include "setup/profiler.h"
#include "setup/rank_context.h"
#include "setup/run_inputs.h"
#include "setup/start_record.h"
#include "train/data_feed.h"
#include "train/lr_schedule.h"
#include "train/run_limits.h"
#include "train/trainer.h"
#include "train/update_guard.h"
#include "train/validation.h"

namespace argosy {
namespace {

/// A run on this rank: the parts of the run, and its training steps. A part is made from the parts above it.
struct Run {
    const mpi::Comm& ranks;
    const Environment& environment;
    const config::JobConfig& config;
    plan::MemoryAccount& account;
    setup::RankContext& context;
    comm::Mesh& mesh = context.mesh;
    comm::Communicator& control = *context.control;

    train::StopAgreement stop{control};
    const model::ModelSpec spec = setup::choose_model(config.model);
    observe::StepTimer timer{mesh};
    const train::TrainerOptions options = setup::with_observers(
        setup::trainer_options(config, spec, mesh.shape()), context.timeline, timer, context.memory);
    const train::BatchSizes sizes = setup::batch_sizes(config, mesh.shape());

    const observe::JobFigures figures = setup::job_figures(config, options, mesh);
    observe::Baseline baseline{config.metrics.baseline, config.job.dump_folder, sizes.global_tokens(),
                               figures, control.rank()};

    const data::Loader loader = setup::same_training_data(ranks, control, config, spec);
    std::vector<eval::Work> tasks = eval::read_tasks(config, spec, control);
    train::Trainer trainer = account.make_trainer(options, mesh);
    train::UpdateGuard guard{setup::update_guard_options(config)};
    resume::RunState state{trainer, mesh, guard, config.training.seq_len, loader.fingerprint()};
    resume::RunLock lock{config, environment, control};
    const resume::Start start = load();
    train::Position position = start.position;

    train::RunLimits limits{setup::run_limits_options(config, mesh.shape()), context.start_seconds, position};
    train::DataFeed feed{loader, mesh, sizes, position.samples, limits.final_step() - position.step};
    std::optional<train::Validation> validation =
        setup::make_validation(ranks, control, config, loader, options, trainer, mesh);
    eval::TrainingEvaluation evaluation{std::move(tasks), options, trainer, mesh};
    const train::LrSchedule schedule{setup::lr_schedule_options(config, limits.final_step())};
    resume::Checkpointer checkpoints{
        resume::save_options(config, spec, mesh.shape(), start, limits.final_step()), control, state};
    const observe::MetricsOptions metrics_options =
        setup::metrics_options(config, limits.final_step(), start.last_own_step);
    observe::MetricsWriter metrics{metrics_options, figures, control.rank()};
    observe::SkippedUpdates skipped{metrics_options, control.rank()};
    observe::Diagnosis diagnosis{
        control.rank() == 0 ? setup::run_facts(config, options, mesh.shape(), context.slow_settings)
                            : observe::RunFacts{},
        setup::rank_times_options(config, mesh.shape(), environment), metrics_options, control};
    setup::Profiler profiler{config, context.timeline, control};

    resume::Start load() {
        account.record(trainer);
        account.enter_phase("the loading of the run's state");
        resume::Start loaded = resume::restore(config, mesh.shape(), control, state);
        account.enter_phase("the preparation of the first step");
        return loaded;
    }

    ExitCode train() {
        const setup::StepRange steps{position.step + 1, limits.final_step()};
        setup::log_job(config, options, context, loader, steps);
        setup::record_start(config, options, context, steps);
        auto reason = stop.agreed();
        while (position.step < limits.final_step() && reason == train::StopReason::None) {
            reason = take_step();
            if (position.step == steps.first) context.end_start_up(config.comm);
        }
        metrics.end();
        checkpoints.finish(position);
        diagnosis.end();
        const ExitCode code = limits.end(reason, position, start.position, checkpoints.saves());
        return code == ExitCode::Done ? baseline.compare_run(control) : code;
    }

    train::StopReason take_step() {
        using enum observe::Phase;
        const auto in = [&](observe::Phase phase, auto work) {
            account.enter_phase(observe::describe(phase));
            const Timeline::Span span(context.timeline, observe::describe(phase));
            return timer.in(phase, work);
        };
        context.memory.reset_peak();
        limits.start_step();
        profiler.start_step(position.step + 1);
        timer.start_step();
        lock.check();  // no part of a save, so that runs without saves show none
        in(Checkpoint, [&] { checkpoints.before_step(); });
        const double lr = schedule.at_step(position.step + 1);
        const auto batch = in(Data, [&] { return feed.next(); });
        const auto totals = in(
            Compute, [&] { return trainer.step().forward_backward(batch, [&] { feed.read_meanwhile(); }); });
        timer.move(Compute, Data, feed.seconds_gpu_waited());
        const auto result = in(Optimizer, [&] {
            checkpoints.before_update();
            return trainer.step().update(totals, lr, guard.limits());
        });
        // Without a target that counts, loss and norm are 0 and say nothing about other steps.
        if (batch.job_counted_tokens > 0) guard.count(result);
        position += {.step = 1, .samples = sizes.global_batch, .tokens = sizes.global_tokens()};
        in(Checkpoint, [&] { checkpoints.after_step(position); });
        const auto validated = in(Validation, [&] { return validate(); });
        const auto evaluated = in(Evaluation, [&] { return evaluate(); });
        report(batch, lr, result, validated, evaluated);
        profiler.finish_step();
        if (guard.gives_up()) checkpoints.finish_save_under_way();  // it holds good data
        guard.check(position.step, result);
        return stop.agreed(limits.finish_step());
    }

    /// Whether the step is due for what comes every `freq` steps and after the last one.
    bool due(int64_t freq) const { return position.step % freq == 0 || position.step == limits.final_step(); }

    std::optional<observe::ValidationMetrics> validate() {
        if (!validation || !due(config.validation.freq)) return {};
        const auto result = validation->run(stop);
        if (!result) return {};
        return observe::ValidationMetrics{result->loss, result->num_tokens};
    }

    static std::optional<observe::StepMetrics::Scores> scores_of(const train::StepResult& result) {
        if (!result.scores) return {};
        return observe::StepMetrics::Scores{result.scores->largest, result.scores->num_too_large};
    }

    std::vector<observe::TaskMetrics> evaluate() {
        return due(config.evaluation.freq) ? evaluation.run(stop) : std::vector<observe::TaskMetrics>{};
    }

    void report(const train::StepBatch& batch, double lr, const train::StepResult& result,
                const std::optional<observe::ValidationMetrics>& validated,
                const std::vector<observe::TaskMetrics>& evaluated) {
        const observe::StepMetrics step{.step = position.step,
                                        .step_of_start = position.step - start.position.step,
                                        .loss = result.loss,
                                        .grad_norm = result.grad_norm,
                                        .lr = lr,
                                        .tokens = sizes.global_tokens(),
                                        .memory = context.memory.of_step(),
                                        .skipped_updates = guard.num_skipped(),
                                        .seconds_allowed = limits.seconds_left(),
                                        .layer_grad_norms = result.unit_grad_norms,
                                        .scores = scores_of(result),
                                        .experts = result.experts,
                                        .validation = validated,
                                        .evaluation = evaluated,
                                        .baseline_tokens_per_second = baseline.tokens_per_second(),
                                        .times = timer.finish_step()};
        metrics.write(step);
        diagnosis.add(step);
        baseline.add(step);
        if (!result.skipped) return;
        skipped.write({position.step, guard.reason(result), result.loss, result.grad_norm,
                       guard.loss_zscore(result), guard.grad_norm_zscore(result), feed.samples(batch),
                       sizes.samples_per_rank()});
    }
};

/// Answers --plan and --search. 3: no plan fits.
ExitCode print_plan(const config::CommandLine& line) {
    stop_catching_requests();
    const config::PlanRequest& request = line.plan;
    observe::MemoryMeter::install();
    const ops::OpsContext tensors(setup::operation_path(line.config));
    const plan::Machine machine = plan::choose_machine(line.config, request);
    if (machine.is_gpu) ops::set_num_threads(1);  // threads of processors need memory that a GPU does not
    if (line.command == config::Command::Search) {
        const plan::Search found = plan::search(line.config, request.num_ranks, machine);
        print_text(request.json ? plan::search_json(found) : plan::search_text(found), stdout);
        return found.best.empty() ? ExitCode::CheckFailed : ExitCode::Done;
    }
    const auto [config, choice] = plan::with_overlap_chosen(line.config, request.num_ranks, machine);
    const plan::Plan plan = plan::make_plan(config, request.num_ranks, machine);
    if (!choice.empty()) spdlog::info("{}", choice);
    print_text(request.json ? plan::plan_json(plan) : plan::plan_text(plan), stdout);
    if (plan.fits()) return ExitCode::Done;
    spdlog::info("the run does not fit: --search in place of --plan lists configurations that do");
    return ExitCode::CheckFailed;
}

/// Writes the config.json of a translated model, and beside it copies of the tokenizer's files of `assets`.
void write_model(const std::filesystem::path& folder, const std::string& text, const std::string& assets) {
    const std::filesystem::path file = folder / "config.json";
    if (std::filesystem::exists(file) && read_text(file, int64_t{1} << 20) != text)
        throw UserError("{} is that of another model; remove it, or name another --output", file.string());
    make_folders(folder);
    for (const auto& asset : interop::assets_in(assets)) write_text(folder / asset.name, asset.bytes);
    ResultFile(file, [](const auto&) { return true; }).write(text);
}

/// Answers --from-torchtitan and --from-litgpt. 3: a key of theirs is missing here.
ExitCode print_arrival(const config::ArrivalRequest& request) {
    config::Arrival arrival = config::translate(request);
    for (const std::string& warning : arrival.warnings) spdlog::warn("{}", warning);
    const std::string assets = arrival.config.model.hf_assets_path;
    const std::string folder = std::filesystem::path(request.output).replace_extension(".model").string();
    const std::string model = setup::settle_model(arrival, folder);
    const std::string toml = config::arrival_toml(arrival, request);
    ResultFile file(request.output, begins_with(config::kArrivalMark));
    if (!model.empty()) write_model(folder, model, assets);
    file.write(toml);
    print_text(config::arrival_text(arrival, request), stdout);
    return arrival.count(config::Fate::Missing) == 0 ? ExitCode::Done : ExitCode::CheckFailed;
}

ExitCode pretrain(const mpi::Comm& ranks, const Environment& environment,
                  const std::vector<std::string>& words) {
    const config::CommandLine line = setup::same_command_line(ranks, words);
    if (line.command == config::Command::Plan || line.command == config::Command::Search) {
        if (ranks.size() > 1)
            throw UserError("--plan and --search run in one process; --gpus {} names ranks", ranks.size());
        return print_plan(line);
    }
    if (line.command == config::Command::Translate)
        return ranks.rank() == 0 ? print_arrival(line.arrival) : ExitCode::Done;
    if (line.command != config::Command::Run) {
        const std::string text = config::answer(line);
        if (ranks.rank() == 0) print_text(text, stdout);
        return ExitCode::Done;
    }
    setup::require_same_settings(ranks, line.config);
    plan::MemoryAccount account(line.config);
    try {
        setup::RankContext context(ranks, line.config, environment);
        const config::JobConfig config =
            setup::with_graphs_chosen(plan::with_overlap_chosen(line.config, ranks, context), ranks, context);
        account.set_config(config);
        Run run{ranks, environment, config, account, context};
        return mpi::print_errors_first("pretrain", ranks, [&] {
            return account.explain_errors_of(run.trainer, [&] { return run.train(); });
        });
    } catch (...) {
        account.explain();
    }
}

}  // namespace
}  // namespace argosy

int main(int argc, char** argv) {
    using namespace argosy;
    catch_stop_requests(StopSignals::Scheduler);
    setup::separate_streams();
    const std::vector<std::string> words(argv + 1, argv + argc);
    // One process answers without MPI, whose start takes longer than the answer.
    const Environment own = Environment::read();
    if (own.start.num_ranks <= 1 && config::asks_for_text(words)) {
        return end_process(run_program("pretrain", [&] {
            start_log(own.log_level, 0, 1);
            print_text(config::answer(config::parse_command_line(words)), stdout);
            return ExitCode::Done;
        }));
    }
    return end_process(mpi::run_program(
        "pretrain", &argc, &argv,
        [&](const auto& ranks, const auto& environment) { return pretrain(ranks, environment, words); }));
}

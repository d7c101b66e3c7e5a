// Trains a model: configuration -> mesh -> data -> model -> steps -> metrics, checkpoints. Uses all of these
// modules.
#include <cstdio>

#include "account/training_memory.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/program.h"
#include "comm/group.h"
#include "comm/mesh.h"
#include "config/parse.h"
#include "config/print.h"
#include "data/records.h"
#include "mpi/program.h"
#include "observe/memory.h"
#include "observe/metrics_writer.h"
#include "observe/setup.h"
#include "observe/skipped_updates.h"
#include "ops/tensor_thread.h"
#include "optim/lr_schedule.h"
#include "resume/checkpoint_setup.h"
#include "resume/checkpointer.h"
#include "resume/restore.h"
#include "resume/run_lock.h"
#include "resume/run_state.h"
#include "setup/device.h"
#include "setup/product_choices.h"
#include "setup/setup.h"
#include "train/data_feed.h"
#include "train/run_limits.h"
#include "train/trainer.h"
#include "train/update_guard.h"

namespace argosy {
namespace {

using observe::Phase;

ExitCode train_model(const mpi::Comm& ranks, const Environment& environment, const config::JobConfig& config,
                     account::MemoryAccount& account) {
    const double started = seconds_now();
    setup::set_determinism(config, environment);
    resume::warn_of_idle_keys(config);
    observe::keep_freed_memory();
    const c10::Device device = setup::choose_device(ranks);
    observe::MemoryMeter memory = observe::MemoryMeter::install();
    ops::TensorThread tensors(setup::operation_path(config), setup::algorithm_search(config.compile));
    const auto all_ranks = comm::make_communicator(mpi::Comm::world(), "world",
                                                   setup::group_options(config.comm, environment, device));
    comm::Communicator& world = *all_ranks;
    setup::warn_of_idle_keys(config, world);
    const auto control = train::control_group(world);
    train::StopAgreement stop(*control);
    const model::ModelSpec spec = setup::choose_model(config.model);
    comm::Mesh mesh(layout::resolve(setup::mesh_request(config.parallelism), world.size()), world);
    const train::TrainerOptions options = setup::trainer_options(config, spec, mesh.shape());
    const train::BatchSizes sizes = setup::batch_sizes(config, mesh.shape());

    const data::TokenFile tokens(setup::dataset_path(config.training));
    setup::check_vocabulary(tokens, spec);
    const data::Loader loader(tokens, {config.training.seq_len, options.seed, config.training.shuffle});
    const int64_t step_tokens = sizes.global_batch * config.training.seq_len;

    account.plan(options, mesh);
    train::Trainer trainer(options, mesh);
    const auto watch = account.watch(trainer);
    train::UpdateGuard guard(config.training.max_nonfinite_steps, config.loss_spike);
    resume::RunState state(trainer, mesh, guard, config.training.seq_len);
    const resume::RunLock lock(config, environment, *control);
    account.doing("loading the start of the run");
    const resume::Start start = resume::restore(config, mesh.shape(), *control, state);
    setup::ProductChoices choices(config, world, tensors);
    train::Position position = start.position;

    account.doing("preparing the first step");
    train::RunLimits limits(config.training, step_tokens, started, position);
    train::DataFeed feed(loader, mesh, sizes, position.samples, limits.num_steps() - position.step);
    const optim::LrSchedule schedule(setup::lr_schedule_options(config, limits.num_steps()));
    resume::Checkpointer checkpoints(
        resume::save_options(config, spec, mesh.shape(), start, limits.num_steps()), *control, state);

    observe::MetricsWriter metrics(
        observe::metrics_options(config, limits.num_steps(), start.last_own_step, environment),
        observe::job_figures(config, spec, options.precision.compute, world), world.rank());
    observe::SkippedUpdates skipped(config.job.dump_folder, world.rank(), start.last_own_step);
    observe::StepTimer timer(mesh);
    setup::log_job(config, spec, mesh.shape(), sizes);

    const auto in = [&](Phase phase, auto work) {
        account.doing(observe::describe(phase));
        return timer.in(phase, work);
    };
    auto reason = stop.agreed();
    while (position.step < limits.num_steps() && reason == train::StopReason::None) {
        memory.reset_peak();
        limits.start_step();
        timer.start_step();
        in(Phase::Checkpoint, [&] { checkpoints.before_step(); });
        const double lr = schedule.at_step(position.step + 1);
        const auto batch = in(Phase::Data, [&] { return feed.next(); });
        const auto totals = in(Phase::Compute, [&] {
            return trainer.step().forward_backward(batch, [&] { feed.read_meanwhile(); });
        });
        timer.move(Phase::Compute, Phase::Data, feed.seconds_gpu_waited());
        const auto result =
            in(Phase::Optimizer, [&] { return trainer.step().update(totals, lr, guard.limits()); });
        guard.count(result);
        choices.keep();
        position += {.step = 1, .samples = sizes.global_batch, .tokens = step_tokens};
        in(Phase::Checkpoint, [&] { checkpoints.after_step(position); });
        metrics.write({.step = position.step,
                       .loss = result.loss,
                       .grad_norm = result.grad_norm,
                       .lr = lr,
                       .tokens = step_tokens,
                       .memory = memory.of_step(),
                       .skipped_updates = guard.num_skipped(),
                       .loss_scale = result.loss_scale,
                       .seconds_allowed = limits.seconds_left(),
                       .layer_grad_norms = result.unit_grad_norms,
                       .times = timer.finish_step()});
        if (result.skipped) {
            skipped.write({position.step, guard.reason(result), result.loss, result.grad_norm,
                           guard.loss_zscore(result), guard.grad_norm_zscore(result), feed.samples(batch),
                           sizes.samples_per_rank()});
        }
        if (guard.gives_up()) checkpoints.settle();  // a save that is under way still has good data
        guard.check(position.step, result);
        reason = stop.agreed(limits.finish_step());
    }
    checkpoints.finish(position);
    if (reason == train::StopReason::Signal && position.step < limits.num_steps()) {
        return train::stopped_by_signal(position, start.position, limits.num_steps(), checkpoints.saves());
    }
    spdlog::info("{}", limits.ending(position));
    return ExitCode::Done;
}

ExitCode pretrain(const mpi::Comm& ranks, const Environment& environment,
                  const std::vector<std::string>& words) {
    const config::CommandLine command = config::parse_command_line(words);
    if (command.request != config::Request::Run) {
        if (ranks.rank() == 0) std::fputs(config::answer(command).c_str(), stdout);
        return ExitCode::Done;
    }
    account::MemoryAccount account(command.config);
    try {
        return train_model(ranks, environment, command.config, account);
    } catch (...) {
        account.explain();
    }
}

}  // namespace
}  // namespace argosy

int main(int argc, char** argv) {
    argosy::catch_stop_requests(argosy::StopRequests::Run);
    return argosy::mpi::run_program(
        "pretrain", &argc, &argv,
        [&](const argosy::mpi::Comm& ranks, const argosy::Environment& environment) {
            return argosy::pretrain(ranks, environment, {argv + 1, argv + argc});
        });
}

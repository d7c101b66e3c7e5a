// Trains a model: configuration -> mesh -> data -> model -> steps -> metrics. The one place that knows all of
// them.
#include <cstdio>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/version.h"
#include "comm/group.h"
#include "config/parse.h"
#include "config/print.h"
#include "data/loader.h"
#include "kernels/table.h"
#include "mesh/mesh.h"
#include "mpi/program.h"
#include "observe/memory.h"
#include "observe/metrics_writer.h"
#include "observe/setup.h"
#include "observe/skipped_updates.h"
#include "ops/tensor_thread.h"
#include "optim/lr_schedule.h"
#include "train/data_feed.h"
#include "train/run_limits.h"
#include "train/setup.h"
#include "train/stop_signal.h"
#include "train/trainer.h"
#include "train/update_guard.h"

namespace argosy {
namespace {

using observe::Phase;

std::string answer(const config::CommandLine& command) {
    switch (command.request) {
        case config::Request::Help:
            return config::help_text();
        case config::Request::Version:
            return fmt::format("pretrain {}\n", version());
        default:
            return config::print_toml(command.config);
    }
}

comm::GroupOptions group_options(const config::Comm& comm, const Environment& environment) {
    return {.timeout_seconds = static_cast<double>(comm.train_timeout_seconds),
            .synchronous_sends = environment.synchronous_sends,
            .shared_memory_bytes = comm.shared_memory ? comm.shared_memory_mib << 20 : 0};
}

ops::Path operation_path(const config::Compile& compile) {
    const char* instruction_set = kernels::table().name;  // throws where it is set to one that cannot run
    spdlog::info("own kernels: {}", compile.enable ? instruction_set : "none, since compile.enable is false");
    return compile.enable ? ops::Path::Fused : ops::Path::Plain;
}

ExitCode pretrain(const mpi::Comm& ranks, const Environment& environment,
                  const std::vector<std::string>& words) {
    const double started = seconds_now();
    const config::CommandLine command = config::parse_command_line(words);
    if (command.request != config::Request::Run) {
        if (ranks.rank() == 0) std::fputs(answer(command).c_str(), stdout);
        return ExitCode::Done;
    }
    const config::JobConfig& config = command.config;
    train::set_determinism(config, environment);
    observe::keep_freed_memory();
    observe::MemoryMeter memory = observe::MemoryMeter::install();
    const ops::TensorThread tensors(operation_path(config.compile));

    const auto all_ranks =
        comm::make_communicator(mpi::Comm::world(), "world", group_options(config.comm, environment));
    comm::Communicator& world = *all_ranks;
    const model::ModelSpec spec = train::choose_model(config.model);
    mesh::Mesh mesh(mesh::resolve(train::mesh_request(config.parallelism), world.size()), world);
    const train::TrainerOptions options = train::trainer_options(config, spec, mesh.shape());
    const train::BatchSizes sizes = train::batch_sizes(config, mesh.shape());

    const data::TokenFile tokens(train::dataset_path(config.training));
    train::check_vocabulary(tokens, spec);
    const data::Loader loader(tokens, {config.training.seq_len, options.seed, config.training.shuffle});
    const int64_t step_tokens = sizes.global_batch * config.training.seq_len;
    train::RunLimits limits(config.training, step_tokens, started);
    train::DataFeed feed(loader, mesh, sizes, config.training.seq_len, limits.num_steps());

    train::Trainer trainer(options, mesh);
    const optim::LrSchedule schedule(train::lr_schedule_options(config, limits.num_steps()));
    train::StopSignal stop(world);
    train::UpdateGuard guard(config.training.max_nonfinite_steps, config.loss_spike);

    observe::MetricsWriter metrics(
        observe::metrics_options(config, limits.num_steps(), environment),
        observe::job_figures(config, spec, options.precision.compute, world.size()), world.rank());
    observe::SkippedUpdates skipped(config.job.dump_folder, world.rank());
    observe::StepTimer timer(mesh);
    spdlog::info("{}: {:.3g} parameters on {} ranks ({}), {} sequences of {} tokens a step",
                 train::model_title(config.model, spec), static_cast<double>(model::num_parameters(spec)),
                 world.size(), mesh.shape().name(), sizes.global_batch, config.training.seq_len);

    if (!config.job.description.empty()) spdlog::info("{}", config.job.description);

    auto wish = train::StopWish::None;
    int64_t step = 0;
    while (step < limits.num_steps() && wish == train::StopWish::None) {
        ++step;
        memory.reset_peak();
        limits.start_step();
        timer.start_step();
        const double lr = schedule.at_step(step);
        const auto batch = timer.in(Phase::Data, [&] { return feed.next(); });
        const auto totals = timer.in(Phase::Compute, [&] { return trainer.step().forward_backward(batch); });
        const auto result =
            timer.in(Phase::Optimizer, [&] { return trainer.step().update(totals, lr, guard.limits()); });
        guard.count(result);
        metrics.write({.step = step,
                       .loss = result.loss,
                       .grad_norm = result.grad_norm,
                       .lr = lr,
                       .tokens = step_tokens,
                       .memory_peak_bytes = memory.peak_bytes(),
                       .rss_bytes = observe::resident_memory().now_bytes,
                       .skipped_updates = guard.num_skipped(),
                       .loss_scale = result.loss_scale,
                       .seconds_allowed = limits.seconds_left(),
                       .layer_grad_norms = result.unit_grad_norms,
                       .times = timer.finish_step()});
        if (result.skipped) {
            skipped.write({step, guard.reason(result), result.loss, result.grad_norm,
                           guard.loss_zscore(result), guard.grad_norm_zscore(result), feed.samples(batch),
                           sizes.samples_per_rank()});
        }
        guard.check(step, result);
        wish = stop.agreed(limits.finish_step());
        if (wish == train::StopWish::Signal) {
            throw JobError("stopped by a signal after step {} of {}; nothing is saved without checkpoints",
                           step, limits.num_steps());
        }
    }
    spdlog::info("{}", limits.ending(step));
    return ExitCode::Done;
}

}  // namespace
}  // namespace argosy

int main(int argc, char** argv) {
    return argosy::mpi::run_program(
        "pretrain", &argc, &argv,
        [&](const argosy::mpi::Comm& ranks, const argosy::Environment& environment) {
            return argosy::pretrain(ranks, environment, {argv + 1, argv + argc});
        });
}

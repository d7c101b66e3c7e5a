// Trains a model: configuration -> mesh -> data -> model -> steps -> metrics. The one place that knows all of
// them.
#include <cstdio>

#include "base/error.h"
#include "base/log.h"
#include "base/version.h"
#include "comm/mpi_communicator.h"
#include "config/parse.h"
#include "config/print.h"
#include "data/loader.h"
#include "mesh/mesh.h"
#include "mpi/program.h"
#include "observe/device.h"
#include "observe/flops.h"
#include "observe/memory.h"
#include "observe/metrics_writer.h"
#include "ops/tensor_thread.h"
#include "optim/lr_schedule.h"
#include "train/data_feed.h"
#include "train/nonfinite_guard.h"
#include "train/setup.h"
#include "train/stop_signal.h"
#include "train/trainer.h"

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

const std::string& dataset_path(const config::Training& training) {
    if (!training.dataset_path.empty()) return training.dataset_path;
    throw UserError("training.dataset_path is not set; make a token file with prepare-data tokenize");
}

void check_vocabulary(const data::TokenFile& tokens, const model::ModelSpec& spec) {
    if (tokens.vocab_size() <= spec.vocab_size) return;
    throw UserError("{} has a vocabulary of {} tokens, but the model's has {}; choose a model that fits it",
                    tokens.path().string(), tokens.vocab_size(), spec.vocab_size);
}

observe::JobFigures job_figures(const config::JobConfig& config, const model::ModelSpec& spec,
                                const train::TrainerOptions& options, int num_ranks) {
    observe::JobFigures figures{num_ranks, observe::flops_per_token(spec, config.training.seq_len)};
    if (config.metrics.measure_gemm_peak)
        figures.peak = observe::measure_gemm_peak(options.precision.compute);
    return figures;
}

/// Of a preset name and size, of a Hugging Face folder its path.
std::string model_name(const config::Model& model, const model::ModelSpec& spec) {
    if (!model.hf_assets_path.empty()) return fmt::format("{} of {}", spec.name, model.hf_assets_path);
    return fmt::format("{} {}", spec.name, model.flavor.value_or(config::Model::kDefaultFlavor));
}

ExitCode pretrain(const mpi::Comm& ranks, const Environment& environment,
                  const std::vector<std::string>& words) {
    const config::CommandLine command = config::parse_command_line(words);
    if (command.request != config::Request::Run) {
        if (ranks.rank() == 0) std::fputs(answer(command).c_str(), stdout);
        return ExitCode::Done;
    }
    const config::JobConfig& config = command.config;
    observe::keep_freed_memory();
    observe::MemoryMeter memory = observe::MemoryMeter::install();
    const ops::TensorThread tensors;

    comm::MpiCommunicator world(mpi::Comm::world(), "world",
                                {.timeout_seconds = static_cast<double>(config.comm.train_timeout_seconds),
                                 .synchronous_sends = environment.synchronous_sends});
    const model::ModelSpec spec = train::choose_model(config.model);
    mesh::Mesh mesh(mesh::resolve(train::mesh_request(config.parallelism), world.size()), world);
    const train::TrainerOptions options = train::trainer_options(config, spec, mesh.shape());
    const train::BatchSizes sizes = train::batch_sizes(config, mesh.shape());

    const data::TokenFile tokens(dataset_path(config.training));
    check_vocabulary(tokens, spec);
    const data::Loader loader(tokens, {config.training.seq_len, options.seed, config.training.shuffle});
    train::DataFeed feed(loader, mesh, sizes, config.training.seq_len, config.training.steps);

    train::Trainer trainer(options, mesh);
    const optim::LrSchedule schedule(train::lr_schedule_options(config));
    train::StopSignal stop(world);
    train::NonfiniteGuard guard(config.training.max_nonfinite_steps);

    observe::MetricsWriter metrics({config.job.dump_folder, config.metrics.log_freq, config.training.steps},
                                   job_figures(config, spec, options, world.size()), world.rank());
    observe::StepTimer timer(mesh);
    spdlog::info("{}: {:.3g} parameters on {} ranks ({}), {} sequences of {} tokens a step",
                 model_name(config.model, spec), static_cast<double>(model::num_parameters(spec)),
                 world.size(), mesh.shape().name(), sizes.global_batch, config.training.seq_len);

    if (!config.job.description.empty()) spdlog::info("{}", config.job.description);

    for (int64_t step = 1; step <= config.training.steps; ++step) {
        memory.reset_peak();
        timer.start_step();
        const double lr = schedule.at_step(step);
        const auto batch = timer.in(Phase::Data, [&] { return feed.next(); });
        const auto totals = timer.in(Phase::Compute, [&] { return trainer.step().forward_backward(batch); });
        const auto result = timer.in(Phase::Optimizer, [&] { return trainer.step().update(totals, lr); });
        guard.count(result);
        metrics.write({.step = step,
                       .loss = result.loss,
                       .grad_norm = result.grad_norm,
                       .lr = lr,
                       .tokens = sizes.global_batch * config.training.seq_len,
                       .memory_peak_bytes = memory.peak_bytes(),
                       .rss_bytes = observe::resident_memory().now_bytes,
                       .skipped_updates = guard.num_skipped(),
                       .times = timer.finish_step()});
        guard.check(step, result);
        if (stop.agreed()) {
            throw JobError("stopped by a signal after step {} of {}; nothing is saved without checkpoints",
                           step, config.training.steps);
        }
    }
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

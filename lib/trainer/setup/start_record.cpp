#include "setup/start_record.h"

#include <ATen/ops/empty.h>
#include <fmt/chrono.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/output.h"
#include "base/program.h"
#include "base/strict_json.h"
#include "config/print.h"
#include "config/schema.h"
#include "cuda/device.h"
#include "model/units.h"
#include "observe/append_file.h"
#include "ops/gpu_float8.h"
#include "parallel/placement.h"
#include "setup/converters.h"
#include "setup/number_types.h"
#include "setup/options.h"
#include "setup/process.h"
#include "train/lr_schedule.h"

namespace argosy::setup {
namespace {

constexpr const char* kConfigMark = "# pretrain ";  // print_config() begins with it

/// The degrees of the axes that have several ranks, the slowest axis first.
nlohmann::ordered_json degrees_of(const layout::MeshShape& mesh) {
    nlohmann::ordered_json degrees = nlohmann::ordered_json::object();
    for (int axis = 0; axis < layout::kNumAxes; ++axis) {
        if (mesh.degrees[axis] > 1)
            degrees[layout::AxisSet(static_cast<layout::Axis>(axis)).name()] = mesh.degrees[axis];
    }
    if (const int experts = mesh.degree(mesh.expert_axes); experts > 1) degrees["ep"] = experts;
    return degrees;
}

std::string start_line(const config::JobConfig& config, const train::TrainerOptions& options,
                       const RankContext& context, StepRange steps, const std::string& config_text) {
    const layout::MeshShape& mesh = context.mesh.shape();
    const train::BatchSizes sizes = batch_sizes(config, mesh);
    const bool on_gpu = context.device.is_cuda();
    const auto [compute, master, reduce] = number_types(config.training);
    nlohmann::ordered_json types = {{"compute", compute}, {"master", master}, {"reduce", reduce}};
    if (const std::string casts = product_casts_name(config, options, mesh); !casts.empty())
        types["products"] = casts;
    const nlohmann::ordered_json line = {
        {"time", fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)))},
        {"first_step", steps.first},
        {"last_step", steps.last},
        {"version", version()},
        {"host", host_name()},
        {"ranks", mesh.num_ranks()},
        {"mesh", degrees_of(mesh)},
        {"device", on_gpu ? cuda::describe_device(cuda::current_device()).name : "cpu"},
        {"number_types", types},
        {"model", model_title(config.model, options.spec)},
        {"parameters", model::num_parameters(options.spec)},
        {"sequences_per_step", sizes.global_batch},
        {"tokens_per_step", sizes.global_tokens()},
        {"config", config_text},
    };
    return json_text(line);
}

/// Warns of a schedule whose last steps train nothing, that never reaches optimizer.lr, or whose parts
/// overlap. A run that ends before total_steps is a part of a longer one, which may be all warm-up.
void warn_of_schedule(const config::JobConfig& config, StepRange steps) {
    const train::LrScheduleOptions options = lr_schedule_options(config, steps.last);
    const train::LrSchedule schedule(options);
    const int64_t after_decay = std::max(options.total_steps + 1, steps.first);
    if (options.peak == 0 || steps.first > steps.last) return;
    if (after_decay <= steps.last && schedule.at_step(after_decay) == 0) {
        spdlog::warn(
            "steps {} to {} have a learning rate of 0 and train nothing: lr_scheduler.total_steps = {} ends "
            "the decay before the run ends; raise it, or set lr_scheduler.min_lr_factor",
            after_decay, steps.last, options.total_steps);
    }
    if (steps.last < options.warmup_steps && options.total_steps <= steps.last) {
        spdlog::warn(
            "lr_scheduler.warmup_steps = {} leaves no step at optimizer.lr = {}: the run ends with step {}, "
            "whose learning rate is {:.3g}; lower it",
            options.warmup_steps, options.peak, steps.last, schedule.at_step(steps.last));
    } else if (schedule.decay_steps() < train::requested_decay_steps(options)) {
        spdlog::warn(
            "the decay has {} step{} and not the {} of lr_scheduler.decay_ratio = {}: warmup_steps = {} of "
            "{} leaves no more; lower one of the two",
            schedule.decay_steps(), schedule.decay_steps() == 1 ? "" : "s",
            train::requested_decay_steps(options), *options.decay_ratio, options.warmup_steps,
            options.total_steps);
    }
}

/// A config.json says how many positions its weights, or its scaled frequencies, are made for.
void warn_of_long_samples(const config::JobConfig& config, const model::ModelSpec& spec) {
    const std::string& folder = config.model.hf_assets_path;
    if (config.training.seq_len <= spec.max_context || !model::has_hugging_face_config(folder)) return;
    spdlog::warn(
        "training.seq_len = {} exceeds max_position_embeddings = {} of {}/config.json: the weights know no "
        "position beyond it; lower the first, or raise the second if that is intended",
        config.training.seq_len, spec.max_context, folder);
}

}  // namespace

void log_idle_keys(const config::JobConfig& config, const comm::Mesh& mesh) {
    const auto idle = [&](const std::string& section, std::initializer_list<const char*> names,
                          std::string_view reason) {
        for (const char* const name : names) {
            const config::Field& field = *config::find_field(section + "." + name);
            if (field.get(config) != field.get({})) spdlog::info("{} has no effect: {}", field.key, reason);
        }
    };
    const auto is_one = [&](layout::AxisSet axes) { return mesh.degree(axes) == 1; };
    if (is_one(layout::Axis::Tensor))
        idle("parallelism", {"enable_async_tensor_parallel", "disable_loss_parallel"},
             "parallelism.tensor_parallel_degree is 1");
    if (is_one(layout::Axis::Tensor) ||
        config.parallelism.enable_async_tensor_parallel == config::Switch::Off || !computes_on_gpu())
        idle("comm", {"peer_copies"}, "no async tensor parallelism between GPUs");
    if (is_one(layout::Axis::Context))
        idle("parallelism", {"context_parallel_rotate_method", "context_parallel_load_balancer"},
             "parallelism.context_parallel_degree is 1");
    if (is_one(parallel::kDenseShards))
        idle("parallelism", {"fsdp_reshard_after_forward"},
             "the number of ranks that share a parameter is 1");

    const bool on_gpu = computes_on_gpu(), plain = config.debug.plain_operations;
    constexpr const char* kPlain = "debug.plain_operations is true";
    if (plain) idle("compile", {"enable"}, kPlain);
    if (plain || !on_gpu)
        idle("compile", {"graphs"}, on_gpu ? kPlain : "no rank computes on a GPU");
    else if (!config.compile.enable)
        idle("compile", {"graphs"}, "compile.enable is false");
    if (plain || !on_gpu)
        idle("compile", {"masked_attention"}, on_gpu ? kPlain : "no rank computes on a GPU");
    if (!config.profiling.enable_profiling)
        idle("profiling", {"save_traces_folder", "profile_freq"}, "profiling.enable_profiling is false");

    const config::Checkpoint& checkpoint = config.checkpoint;
    if (!checkpoint.saves())
        idle("checkpoint",
             {"interval", "keep_latest_k", "keep_every", "async_mode", "enable_first_step_checkpoint",
              "last_save_model_only", "last_save_in_hf", "export_dtype"},
             checkpoint.load_only ? "checkpoint.load_only saves nothing" : "checkpoint.enable is false");
    else if (checkpoint.keep_latest_k == 0)
        idle("checkpoint", {"keep_every"}, "checkpoint.keep_latest_k = 0 keeps all steps");
    if (!checkpoint.enable && checkpoint.initial_load_model_only)
        idle("checkpoint", {"exclude_from_loading"}, "only weights are loaded without checkpoint.enable");
}

void log_job(const config::JobConfig& config, const train::TrainerOptions& options,
             const RankContext& context, const data::Loader& loader, StepRange steps) {
    if (context.control->rank() != 0) return;
    const layout::MeshShape& mesh = context.mesh.shape();
    const train::BatchSizes sizes = batch_sizes(config, mesh);
    const std::string ranks =
        mesh.num_ranks() == 1 ? "one rank" : fmt::format("{} ranks ({})", mesh.num_ranks(), mesh.name());
    spdlog::info("{}: {:.3g} parameters on {}, {} sequences of {} tokens per step",
                 model_title(config.model, options.spec),
                 static_cast<double>(model::num_parameters(options.spec)), ranks, sizes.global_batch,
                 config.training.seq_len);
    spdlog::info("{}", number_types_line(config.training));
    log_product_casts(config, options, mesh, ops::product_target(at::empty({0}, context.device)));
    if (!config.job.description.empty()) spdlog::info("description: \"{}\"", config.job.description);
    if (const std::string warning = missing_assets(config.model); !warning.empty())
        spdlog::warn("{}", warning);
    warn_of_schedule(config, steps);
    warn_of_long_samples(config, options.spec);
    if (loader.num_samples() < sizes.global_batch) {
        spdlog::warn(
            "a step has {} samples and the data {}, so each step trains on some of them more than once; add "
            "data, or lower training.global_batch_size or local_batch_size",
            sizes.global_batch, loader.num_samples());
    }
}

void record_start(const config::JobConfig& config, const train::TrainerOptions& options,
                  const RankContext& context, StepRange steps) {
    if (context.control->rank() != 0) return;
    const std::filesystem::path folder = config.job.dump_folder;
    const std::string config_text = config::print_config(config);
    const auto try_to_write = [](const char* file, const auto& write) {
        try {
            write();
        } catch (const std::exception& error) {
            spdlog::warn("{} in the run's folder does not show this start: {}", file, error.what());
        }
    };
    try_to_write("starts.jsonl", [&] {
        observe::AppendFile((folder / "starts.jsonl").string())
            .append_line(start_line(config, options, context, steps, config_text));
    });
    try_to_write("effective.toml",
                 [&] { ResultFile(folder / "effective.toml", begins_with(kConfigMark)).write(config_text); });
}

}  // namespace argosy::setup

#include "scoring/scoring_model.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/program.h"
#include "config/job_config.h"
#include "eval/device.h"
#include "eval/layerwise_model.h"
#include "eval/weights.h"
#include "interop/byte_progress.h"
#include "model/parameter.h"
#include "observe/memory.h"
#include "ops/ops_context.h"
#include "parallel/parallel_model.h"
#include "resume/restore.h"
#include "resume/run_state.h"
#include "scoring/mesh_scorer.h"
#include "setup/rank_context.h"
#include "setup/setup.h"
#include "train/run_limits.h"
#include "train/trainer.h"

namespace argosy::scoring {
namespace {

void log_model(const interop::ModelSource& source, const std::string& dtype, const std::string& place) {
    spdlog::info("{} ({}): {:.3g} parameters, computed in {} on {}", source.path.string(), name(source.form),
                 static_cast<double>(model::num_parameters(source.spec)), dtype, place);
}

observe::MemoryNeeds needs_of(const ScoringOptions& options, bool on_gpu) {
    return {on_gpu, options.dtype, options.score.batch.num_tokens, options.longest_window};
}

config::Precision precision(const std::string& dtype) {
    if (dtype == "fp32") return config::Precision::Float32;
    if (dtype == "bf16") return config::Precision::BFloat16;
    if (dtype == "fp16") return config::Precision::Float16;
    throw UserError("--dtype is '{}'; it must be fp32, bf16 or fp16", dtype);
}

/// A sequence holds the longest window and divides evenly among the ranks of the tensor axis. A microbatch is
/// as many sequences as the limits allow.
void choose_batch(const ScoringOptions& options, config::JobConfig& config) {
    const int64_t tensor = options.degrees.tensor;
    config.training.seq_len = (options.longest_window + tensor - 1) / tensor * tensor;
    int64_t microbatch = std::max<int64_t>(1, options.score.batch.num_tokens / config.training.seq_len);
    if (options.score.batch.num_windows > 0)
        microbatch = std::min(microbatch, options.score.batch.num_windows);
    config.parallelism.pipeline_parallel_microbatch_size = microbatch;
    config.training.local_batch_size = microbatch * options.degrees.pipeline;
}

config::JobConfig job_config(const interop::ModelSource& source, const ScoringOptions& options,
                             int num_ranks) {
    const layout::MeshRequest request = mesh_request(options.degrees, num_ranks);
    config::JobConfig config;
    config.job.dump_folder = "";  // an evaluation is no run, and has no such folder
    config.model.accept_config_keys = options.accepted_keys;
    config.parallelism.tensor_parallel_degree = request.tensor;
    config.parallelism.pipeline_parallel_degree = request.pipeline;
    config.parallelism.data_parallel_shard_degree = request.shard;
    config.parallelism.data_parallel_replicate_degree = request.replicate;
    config.training.dtype = config.training.mixed_precision_param = precision(options.dtype);
    config.checkpoint.initial_load_path = source.path.string();
    choose_batch(options, config);
    return config;
}

Environment with_device(Environment environment, const std::string& wanted) {
    if (wanted == "cpu") environment.device = wanted;
    return environment;
}

/// The model that one process reads layer by layer.
struct Layerwise {
    ops::OpsContext context;
    eval::LayerwiseModel model;
    eval::ScoreOptions options;
};

/// The model on a mesh: each rank holds its share of the weights once, in the type of the computation, and no
/// gradients.
class MeshModel {
  public:
    /// COLLECTIVE. Loads the weights of `source`. Throws UserError if the ranks do not fit the mesh or the
    /// model does not, and what setup::RankContext and resume::load_weights throw.
    MeshModel(const mpi::Comm& ranks, const Environment& environment, const interop::ModelSource& source,
              const ScoringOptions& options);
    MeshModel(const MeshModel&) = delete;

    /// COLLECTIVE: as MeshScorer::score(). Throws JobError on all ranks after a signal that asks a rank to
    /// end.
    std::vector<eval::RecordScore> score(std::span<const eval::Tokens> records,
                                         const std::vector<eval::Window>& windows,
                                         const std::function<void(double share)>& progress);

    /// The device of this rank in results: "cpu" or "cuda:0".
    std::string device_name() const { return context_.device.str(); }
    bool on_gpu() const { return !context_.device.is_cpu(); }
    const layout::MeshShape& mesh() const { return context_.mesh.shape(); }
    /// The maximum of the tensors' bytes on this rank so far.
    int64_t peak_bytes() const { return context_.memory.peak_bytes(); }

  private:
    void end_if_stopped();

    config::JobConfig config_;
    setup::RankContext context_;
    train::StopAgreement stop_;
    train::TrainerOptions options_;
    parallel::ParallelModel model_;
    MeshScorer scorer_;
};

MeshModel::MeshModel(const mpi::Comm& ranks, const Environment& environment,
                     const interop::ModelSource& source, const ScoringOptions& options)
    : config_(job_config(source, options, ranks.size())),
      context_(ranks, config_, with_device(environment, options.device)),
      stop_(*context_.control),
      options_(setup::trainer_options(config_, source.spec, context_.mesh.shape())),
      model_(options_.spec, place_parameters(options_, context_.mesh.shape()), context_.mesh,
             model_options(options_, parallel::Purpose::Inference)),
      scorer_(model_, options_, context_.mesh) {
    if (options.device == "gpu" && !on_gpu()) {
        throw UserError(
            "--device gpu, but no rank sees a GPU: check nvidia-smi, CUDA_VISIBLE_DEVICES and the job's "
            "--gpus "
            "option, or use --device cpu");
    }
    resume::HeldWeights weights(model_);
    load_weights(config_, context_.mesh.shape(), *context_.control, weights);
    end_if_stopped();
}

void MeshModel::end_if_stopped() {
    if (stop_.agreed() != train::StopReason::None)
        throw JobError("stopped by a signal; no unfinished output is left");
}

std::vector<eval::RecordScore> MeshModel::score(std::span<const eval::Tokens> records,
                                                const std::vector<eval::Window>& windows,
                                                const std::function<void(double share)>& progress) {
    return scorer_.score(records, windows, [&](double share) {
        end_if_stopped();
        if (progress) progress(share);
    });
}

}  // namespace

layout::MeshRequest mesh_request(const Degrees& degrees, int num_ranks) {
    const double all = static_cast<double>(degrees.tensor) * degrees.pipeline * degrees.shard;
    const int64_t product = all <= num_ranks ? std::llround(all) : 0;
    if (product == 0 || num_ranks % product != 0) {
        throw UserError(
            "tensor {} x pipeline {} x shard {} = {:.0f} ranks do not divide the {} that were started; "
            "change a "
            "degree, or start a multiple of {:.0f} ranks",
            degrees.tensor, degrees.pipeline, degrees.shard, all, num_ranks, all);
    }
    return {.pipeline = degrees.pipeline,
            .replicate = static_cast<int>(num_ranks / product),
            .shard = degrees.shard,
            .context = 1,
            .tensor = degrees.tensor};
}

ScoringModel layerwise_model(const interop::ModelSource& source, const ScoringOptions& options) {
    const eval::Device device = eval::choose_device(options.device);
    // The meter counts the bytes of tensors. If host memory runs out, its error names the requested bytes.
    observe::MemoryMeter::install();
    eval::ScoreOptions score = options.score;
    score.stream_bytes = eval::stream_bytes(device, score.stream_bytes);
    const auto type = at::TensorOptions(eval::compute_type(options.dtype)).device(device.torch_device);
    const std::shared_ptr<Layerwise> parts(
        new Layerwise{ops::OpsContext(), {*source.tensors, source.spec, type}, score});
    log_model(source, options.dtype, device.text());
    return {[parts](auto records, const auto& windows, const ScoringModel::Progress& progress) {
                parts->options.progress = [&](double share) {
                    throw_if_stop_requested();
                    progress(share);
                };
                return eval::score_windows(parts->model, records, windows, parts->options);
            },
            device.name(), needs_of(options, device.gpu.has_value())};
}

ScoringModel mesh_model(const interop::ModelSource& source, const ScoringOptions& options,
                        const mpi::Comm& ranks, const Environment& environment) {
    const auto model = std::make_shared<MeshModel>(ranks, environment, source, options);
    log_model(source, options.dtype, fmt::format("{} ranks ({})", ranks.size(), model->mesh().name()));
    return {[model](auto records, const auto& windows, const ScoringModel::Progress& progress) {
                auto scores = model->score(records, windows, progress);
                spdlog::info("tensors took at most {} on this rank",
                             interop::bytes_text(model->peak_bytes()));
                return scores;
            },
            model->device_name(), needs_of(options, model->on_gpu())};
}

}  // namespace argosy::scoring

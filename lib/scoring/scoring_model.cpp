#include "scoring/scoring_model.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/program.h"
#include "base/strict_json.h"
#include "config/job_config.h"
#include "eval/device.h"
#include "eval/layerwise_model.h"
#include "eval/weights.h"
#include "interop/byte_progress.h"
#include "model/parameter.h"
#include "observe/memory.h"
#include "observe/shortage.h"
#include "ops/ops_context.h"
#include "parallel/parallel_model.h"
#include "parallel/tensor_parallel.h"
#include "resume/collectives.h"
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

JobError stopped() { return JobError("stopped by a signal; no unfinished output is left"); }

/// The model that one process reads layer by layer.
struct Layerwise {
    ops::OpsContext context;
    eval::LayerwiseModel model;
    eval::ScoreOptions options;
};

int num_side_by_side(const ScoringOptions& options, size_t num_contexts) {
    const int64_t limit = options.score.batch.num_windows;
    return static_cast<int>(
        std::min(limit > 0 ? limit : eval::kSideBySide, std::max<int64_t>(1, num_contexts)));
}

/// The same model, with errors that are explained.
ScoringModel explained(const ScoringModel& model, const ScoringOptions& options, bool on_gpu,
                       int num_replicas) {
    const int64_t batch_tokens = options.score.batch.num_tokens;
    const auto score = [=](const auto&...) {
        return observe::MemoryNeeds{on_gpu, options.dtype, batch_tokens, options.longest_window};
    };
    const auto generate = [=](const auto&, const auto& contexts, const auto& generate_options,
                              int64_t max_tokens, const auto&) {
        const size_t of_replica = (contexts.size() + num_replicas - 1) / num_replicas;
        return observe::MemoryNeeds{on_gpu,
                                    options.dtype,
                                    batch_tokens,
                                    max_tokens,
                                    num_side_by_side(options, of_replica),
                                    generate_options.max_new_tokens};
    };
    const auto generate_one = [=](const auto&, const auto&, const auto& generate_options, const auto&) {
        return observe::MemoryNeeds{
            .on_gpu = on_gpu, .dtype = options.dtype, .max_new_tokens = generate_options.max_new_tokens};
    };
    return {observe::explained(score, model.score), observe::explained(generate, model.generate),
            observe::explained(generate_one, model.generate_one), model.device_name};
}

/// The texts of all ranks in the order of their contexts. `rows` has those of this rank, each as
/// [number of its context, text, number of its tokens]. COLLECTIVE.
std::vector<eval::GeneratedText> gathered_texts(comm::Communicator& group, const nlohmann::json& rows,
                                                size_t num_contexts) {
    std::vector<eval::GeneratedText> texts(num_contexts);
    for (const std::string& of_rank : resume::all_gather_texts(group, rows.dump())) {
        for (const auto& row : parse_json(of_rank, "the texts of a rank")) {
            texts.at(row[0].get<size_t>()) = {row[1].get<std::string>(), row[2].get<int64_t>()};
        }
    }
    return texts;
}

/// The model on a mesh: each rank holds its share of the weights once, in the type of the computation, and no
/// gradients.
class MeshModel {
  public:
    /// COLLECTIVE. Loads the weights of `source`. Throws UserError if the ranks do not fit the mesh or the
    /// model does not, and what setup::RankContext, require_same_tasks and resume::load_weights throw.
    MeshModel(const mpi::Comm& ranks, const Environment& environment, const interop::ModelSource& source,
              const ScoringOptions& options, std::span<const eval::Work> tasks);
    MeshModel(const MeshModel&) = delete;

    /// COLLECTIVE: as MeshScorer::score(). Throws JobError on all ranks after a signal that asks a rank to
    /// end.
    std::vector<eval::RecordScore> score(std::span<const eval::Tokens> records,
                                         const std::vector<eval::Window>& windows,
                                         const std::function<void(double share)>& progress);

    /// COLLECTIVE: each replica continues every num_replicas-th context. Throws as score() does.
    std::vector<eval::GeneratedText> generate(const tokenizer::Tokenizer& tokenizer,
                                              std::span<const eval::Tokens> contexts,
                                              const eval::GenerateOptions& options, int64_t max_tokens,
                                              const std::function<void(double share)>& progress);

    /// COLLECTIVE: as ScoringModel::generate_one. Throws as score() does.
    int64_t generate_one(const tokenizer::Tokenizer& tokenizer, const tokenizer::Ids& prompt,
                         const eval::GenerateOptions& options, const ScoringModel::TakeText& take);

    /// The device of this rank in results: "cpu" or "cuda:0".
    std::string device_name() const { return context_.device.str(); }
    bool on_gpu() const { return !context_.device.is_cpu(); }
    const layout::MeshShape& mesh() const { return context_.mesh.shape(); }
    /// The maximum of the tensors' bytes on this rank so far.
    int64_t peak_bytes() const { return context_.memory.peak_bytes(); }

  private:
    /// The model on the tensor axis, with the weights of this object.
    std::unique_ptr<eval::ResidentModel> resident(int64_t max_tokens, int num_sequences);
    void end_if_stopped();
    bool is_time_to_meet(double last_seconds);
    bool meet_replicas(bool generates);

    const ScoringOptions scoring_options_;
    config::JobConfig config_;
    setup::RankContext context_;
    train::StopAgreement stop_;
    train::TrainerOptions options_;
    parallel::ParallelModel model_;
    MeshScorer scorer_;
};

MeshModel::MeshModel(const mpi::Comm& ranks, const Environment& environment,
                     const interop::ModelSource& source, const ScoringOptions& options,
                     std::span<const eval::Work> tasks)
    : scoring_options_(options),
      config_(job_config(source, options, ranks.size())),
      context_(ranks, config_, with_device(environment, options.device)),
      stop_(*context_.control),
      options_(setup::trainer_options(config_, source.spec, context_.mesh.shape())),
      model_(options_.spec, place_parameters(options_, context_.mesh.shape()), context_.mesh,
             model_options(options_, parallel::Purpose::Inference)),
      scorer_(model_, options_, context_.mesh, options.score.batch.num_windows) {
    if (options.device == "gpu" && !on_gpu()) {
        throw UserError(
            "--device gpu, but no rank sees a GPU: check nvidia-smi, CUDA_VISIBLE_DEVICES and the job's "
            "--gpus option, or use --device cpu");
    }
    require_same_tasks(*context_.control, tasks);
    resume::HeldWeights weights(model_);
    load_weights(config_, context_.mesh.shape(), *context_.control, weights);
    end_if_stopped();
}

void MeshModel::end_if_stopped() {
    if (stop_.agreed() != train::StopReason::None) throw stopped();
}

std::vector<eval::RecordScore> MeshModel::score(std::span<const eval::Tokens> records,
                                                const std::vector<eval::Window>& windows,
                                                const std::function<void(double share)>& progress) {
    return scorer_.score(records, windows, [&](double share) {
        end_if_stopped();
        if (progress) progress(share);
    });
}

std::unique_ptr<eval::ResidentModel> MeshModel::resident(int64_t max_tokens, int num_sequences) {
    std::vector<model::Weights> units;
    for (parallel::Stage& stage : model_.stages()) {
        for (parallel::ShardedUnit& unit : stage.units) units.push_back(unit.weights());
    }
    const auto type = at::TensorOptions(model_.precision().compute).device(model_.device());
    return std::make_unique<eval::ResidentModel>(
        model_.spec(), std::move(units), type, max_tokens, num_sequences,
        [this](int64_t num_tokens) { return parallel::make_tensor_axis({}, context_.mesh, num_tokens); });
}

/// COLLECTIVE over the tensor axis, whose ranks meet the others after the same step. `last_seconds` is the
/// time of the last meeting.
bool MeshModel::is_time_to_meet(double last_seconds) {
    constexpr double kSecondsBetweenMeetings = 2;
    const bool own = seconds_now() - last_seconds >= kSecondsBetweenMeetings;
    if (context_.mesh.degree(layout::Axis::Tensor) == 1) return own;
    return resume::maximum(context_.mesh.group(layout::Axis::Tensor), own ? 1 : 0) == 1;
}

/// COLLECTIVE: ends all ranks, with a JobError, after a signal to one of them; else returns whether one of
/// them still generates. `generates` says it of this rank.
bool MeshModel::meet_replicas(bool generates) {
    enum State : int64_t { Finished, Generates, Stopped };
    const State of_rank = generates ? Generates : Finished;
    const int64_t state = resume::maximum(*context_.control, stop_requested() ? Stopped : of_rank);
    if (state == Stopped) throw stopped();
    return state == Generates;
}

std::vector<eval::GeneratedText> MeshModel::generate(const tokenizer::Tokenizer& tokenizer,
                                                     std::span<const eval::Tokens> contexts,
                                                     const eval::GenerateOptions& options, int64_t max_tokens,
                                                     const std::function<void(double share)>& progress) {
    const int num_replicas = context_.mesh.degree(layout::kDataAxes);
    std::vector<eval::Tokens> own;
    for (size_t i = context_.mesh.index(layout::kDataAxes); i < contexts.size(); i += num_replicas) {
        own.push_back(contexts[i]);
    }
    const auto model = resident(max_tokens, num_side_by_side(scoring_options_, own.size()));
    // The replicas meet every few seconds, so that none waits for another one until the time limit of a wait.
    double last_seconds = seconds_now();
    const auto texts = eval::continue_contexts(*model, tokenizer, own, options,
                                               scoring_options_.score.batch.num_tokens, [&](double share) {
                                                   if (is_time_to_meet(last_seconds)) {
                                                       meet_replicas(/*generates=*/true);
                                                       last_seconds = seconds_now();
                                                   }
                                                   progress(share);
                                               });
    while (meet_replicas(/*generates=*/false)) {
    }
    nlohmann::json rows = nlohmann::json::array();
    for (size_t i = 0; i < texts.size(); ++i) {
        rows.push_back(
            {context_.mesh.index(layout::kDataAxes) + i * num_replicas, texts[i].text, texts[i].num_tokens});
    }
    return gathered_texts(*context_.control, rows, contexts.size());
}

int64_t MeshModel::generate_one(const tokenizer::Tokenizer& tokenizer, const tokenizer::Ids& prompt,
                                const eval::GenerateOptions& options, const ScoringModel::TakeText& take) {
    require_same_text(*context_.control, tokenizer, prompt, options);
    const auto model = resident(std::ssize(prompt) + options.max_new_tokens, 1);
    return eval::generate(*model, tokenizer, prompt, options, [&](const std::string& text) {
        end_if_stopped();
        take(text);
    });
}

}  // namespace

void require_generation(const Degrees& degrees, const std::string& what) {
    if (degrees.pipeline == 1 && degrees.shard == 1) return;
    throw UserError(
        "{} generates texts, for which a rank needs all layers and its part of them in memory; leave out "
        "--pipeline-parallel-degree and --data-parallel-shard-degree, or take --tensor-parallel-degree in "
        "their place",
        what);
}

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
    const auto resident = [parts, &source, type](int64_t max_tokens, int num_sequences) {
        return std::make_unique<eval::ResidentModel>(*source.tensors, source.spec, type, max_tokens,
                                                     num_sequences);
    };
    const ScoringModel layerwise{
        .score =
            [parts](auto records, const auto& windows, const ScoringModel::Progress& progress) {
                parts->options.progress = [&](double share) {
                    throw_if_stop_requested();
                    progress(share);
                };
                return eval::score_windows(parts->model, records, windows, parts->options);
            },
        .generate =
            [resident, options](const auto& tokenizer, auto contexts, const auto& generate_options,
                                int64_t max_tokens, const ScoringModel::Progress& progress) {
                const auto model = resident(max_tokens, num_side_by_side(options, contexts.size()));
                return eval::continue_contexts(*model, tokenizer, contexts, generate_options,
                                               options.score.batch.num_tokens, [&](double share) {
                                                   throw_if_stop_requested();
                                                   progress(share);
                                               });
            },
        .generate_one =
            [resident](const auto& tokenizer, const auto& prompt, const auto& generate_options,
                       const ScoringModel::TakeText& take) {
                const auto model = resident(std::ssize(prompt) + generate_options.max_new_tokens, 1);
                return eval::generate(*model, tokenizer, prompt, generate_options,
                                      [&](const std::string& text) {
                                          throw_if_stop_requested();
                                          take(text);
                                      });
            },
        .device_name = device.name()};
    return explained(layerwise, options, device.gpu.has_value(), /*num_replicas=*/1);
}

ScoringModel mesh_model(const interop::ModelSource& source, const ScoringOptions& options,
                        std::span<const eval::Work> tasks, const mpi::Comm& ranks,
                        const Environment& environment) {
    const auto model = std::make_shared<MeshModel>(ranks, environment, source, options, tasks);
    log_model(source, options.dtype, fmt::format("{} ranks ({})", ranks.size(), model->mesh().name()));
    const auto log_peak = [model] {
        spdlog::info("tensors took at most {} on this rank", interop::bytes_text(model->peak_bytes()));
    };
    const ScoringModel on_mesh{
        .score =
            [model, log_peak](auto records, const auto& windows, const auto& progress) {
                auto scores = model->score(records, windows, progress);
                log_peak();
                return scores;
            },
        .generate =
            [model, log_peak](const auto& tokenizer, auto contexts, const auto& generate_options,
                              int64_t max_tokens, const auto& progress) {
                auto texts = model->generate(tokenizer, contexts, generate_options, max_tokens, progress);
                log_peak();
                return texts;
            },
        .generate_one =
            [model](const auto& tokenizer, const auto& prompt, const auto& generate_options,
                    const auto& take) {
                return model->generate_one(tokenizer, prompt, generate_options, take);
            },
        .device_name = model->device_name()};
    return explained(on_mesh, options, model->on_gpu(), model->mesh().degree(layout::kDataAxes));
}

}  // namespace argosy::scoring

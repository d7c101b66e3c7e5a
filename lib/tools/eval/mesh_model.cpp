// The model of `eval` on a mesh: each rank holds its share of the weights once, in the type of the
// computation, and no gradients. The model scores windows by the forward pass of training
// (eval/mesh_scorer.h) and generates texts with ResidentModel.
//
// Generating: the data-parallel ranks divide the texts. The ranks of the tensor and pipeline axes generate
// each text together: a stage passes its rows on to the next one, and all get the logits of the last one.
// Ranks that shard weights gather each unit's weights in each step of the model.
//
// The ranks that hold one copy of the weights together are a group. They must run the same number of steps,
// although their texts end after different numbers of tokens:
// 1. Before each step, the group agrees whether any of its ranks still generates. If one does, all of them
//    take the step; a rank without a text appends no tokens.
// 2. Every few seconds this agreement also includes an agreement of all ranks, with all other groups. There,
//    a signal to one rank ends all of them. Groups with shorter texts take part, too, so that none of their
//    ranks waits for a group with longer texts until the time limit of a wait.
// 3. A rank that has finished its texts goes on with 1 until its group has finished, and then with the
//    agreements of all ranks until all groups have finished.
#include <algorithm>
#include <exception>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/program.h"
#include "base/strict_json.h"
#include "base/units.h"
#include "comm/values.h"
#include "config/job_config.h"
#include "eval/mesh_scorer.h"
#include "eval/resident_model.h"
#include "eval/scoring_model.h"
#include "interop/conversion.h"
#include "observe/shortage.h"
#include "parallel/parallel_model.h"
#include "parallel/tensor_parallel.h"
#include "resume/restore.h"
#include "resume/run_state.h"
#include "setup/options.h"
#include "setup/rank_context.h"
#include "train/run_limits.h"
#include "train/trainer.h"

namespace argosy::eval {
namespace {

using layout::Axis;

/// The axes of the ranks that take each step of generation together: those of the same texts, and those that
/// gather weights from each other.
constexpr layout::AxisSet kStepAxes = {Axis::Pipeline, Axis::Shard, Axis::Tensor};

config::Precision precision(const std::string& dtype) {
    return compute_type(dtype) == at::kFloat ? config::Precision::Float32 : config::Precision::BFloat16;
}

/// A sequence holds the longest window and divides evenly among the ranks of the tensor axis. A microbatch is
/// as many sequences as the limits allow.
void choose_batch(const ScoringOptions& options, config::JobConfig& config) {
    const int64_t tensor = options.degrees.tensor;
    config.training.seq_len = round_up(options.longest_window, tensor);
    int64_t microbatch = std::max<int64_t>(1, options.score.batch.num_tokens / config.training.seq_len);
    if (options.score.batch.num_windows > 0)
        microbatch = std::min(microbatch, options.score.batch.num_windows);
    config.parallelism.pipeline_parallel_microbatch_size = microbatch;
    config.training.local_batch_size = microbatch * options.degrees.pipeline;
}

/// The configuration of a job with this mesh, these weights and these batches. The ranks, the mesh and the
/// loading of the weights are set up from it, as those of a training run are.
config::JobConfig job_config(const interop::ModelSource& source, const ScoringOptions& options,
                             int num_ranks) {
    const layout::MeshRequest request = mesh_request(options.degrees, num_ranks);
    config::JobConfig config;
    config.job.dump_folder = "";  // an evaluation has no folder: it writes no files after a hang
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

/// The texts of all ranks in the order of their contexts. `rows` has those of this rank, each as
/// [number of its context, text, number of its tokens]. COLLECTIVE.
std::vector<GeneratedText> gathered_texts(comm::Communicator& group, const nlohmann::json& rows,
                                          size_t num_contexts) {
    std::vector<GeneratedText> texts(num_contexts);
    for (const std::string& of_rank : comm::all_gather_texts(group, rows.dump())) {
        for (const auto& row : parse_json(of_rank, "the texts of a rank")) {
            texts.at(row[0].get<size_t>()) = {row[1].get<std::string>(), row[2].get<int64_t>()};
        }
    }
    return texts;
}

/// The units of a ParallelModel. While a sharded unit runs, the weights of the next one are gathered.
class MeshUnits : public ResidentUnits {
  public:
    /// REQUIRES: the arguments outlive this object.
    MeshUnits(parallel::ParallelModel& model, const parallel::ModelPlacement& placement, comm::Mesh& mesh,
              std::function<void()> start_step)
        : placement_(placement),
          mesh_(mesh),
          pipeline_(mesh.group(Axis::Pipeline)),
          start_step_(std::move(start_step)),
          units_(placement.units.size()) {
        std::vector<size_t> counts(model.stages().size());
        for (size_t unit = 0; unit < units_.size(); ++unit) {
            if (!is_own(unit)) continue;
            const int stage = model.stage_map().local_index(placement.unit_stage[unit]);
            units_[unit] = &model.stages()[stage].units[counts[stage]++];
        }
    }
    ~MeshUnits() override {
        if (std::uncaught_exceptions() > 0) return;  // the run ends; a gather may have no end
        release(current_);
        release(next_);
    }

    bool has(int64_t unit) const override { return units_[unit] != nullptr; }
    const model::Weights& weights(int64_t unit) override {
        if (!units_[unit]->sharded() || unit == current_) return units_[unit]->weights();
        release(std::exchange(current_, unit));
        if (next_ != unit) units_[unit]->gather();
        const model::Weights& gathered = units_[unit]->weights();
        next_ = unit + 1;
        while (next_ < std::ssize(units_) && !has(next_)) ++next_;
        if (next_ == std::ssize(units_)) next_ = kNone;
        if (next_ != kNone) units_[next_]->gather();
        return gathered;
    }
    std::unique_ptr<model::TensorAxis> tensor_axis(int64_t num_tokens) override {
        return parallel::make_tensor_axis({}, mesh_, num_tokens);
    }
    void start_step() override { start_step_(); }
    void send(const at::Tensor& rows, int64_t unit) override {
        pipeline_.run(
            {.kind = comm::OpKind::Send, .in = rows.contiguous(), .peer = placement_.rank_of(unit)});
    }
    void receive(const at::Tensor& rows, int64_t unit) override {
        pipeline_.run({.kind = comm::OpKind::Receive, .out = rows, .peer = placement_.rank_of(unit)});
    }
    void broadcast(const at::Tensor& logits) override {
        if (pipeline_.size() == 1) return;
        const int root = placement_.rank_of(units_.size() - 1);
        pipeline_.run({.kind = comm::OpKind::Broadcast, .out = logits, .peer = root});
    }

  private:
    static constexpr int64_t kNone = -1;

    bool is_own(size_t unit) const { return placement_.rank_of(unit) == pipeline_.rank(); }
    void release(int64_t unit) {
        if (unit == kNone) return;
        units_[unit]->weights();  // a gather may be under way
        units_[unit]->release();
    }

    const parallel::ModelPlacement& placement_;
    comm::Mesh& mesh_;
    comm::Communicator& pipeline_;
    const std::function<void()> start_step_;
    std::vector<parallel::ShardedUnit*> units_;  // of the whole model; null: on another rank
    int64_t current_ = kNone, next_ = kNone;     // sharded units whose weights are here, or are coming
};

class MeshModel : public ScoringModel {
  public:
    /// COLLECTIVE.
    MeshModel(const mpi::Comm& ranks, const Environment& environment, const interop::ModelSource& source,
              const ScoringOptions& options, std::span<const Work> tasks);
    MeshModel(const MeshModel&) = delete;

    std::vector<RecordScore> score(std::span<const Tokens> records, const std::vector<Window>& windows,
                                   const Progress& progress) override;
    std::vector<GeneratedText> generate(const tokenizer::Tokenizer& tokenizer,
                                        std::span<const Tokens> contexts, const GenerateOptions& options,
                                        int64_t max_tokens, const Progress& progress) override;
    std::string device_name() const override { return context_.device.str(); }
    std::string place() const override {
        const layout::MeshShape& shape = context_.mesh.shape();
        return fmt::format("{} ranks ({})", context_.world->size(), shape.name());
    }

  private:
    void log_peak() const;
    std::unique_ptr<ResidentModel> resident(int64_t max_tokens, int num_sequences);
    void end_if_stopped();
    bool any_rank_still_generates(bool own);
    bool any_group_is_unfinished(bool own);
    void take_steps_until_all_are_done(ResidentModel& model);

    const ScoringOptions scoring_options_;
    config::JobConfig config_;
    setup::RankContext context_;
    train::StopAgreement stop_;
    train::TrainerOptions options_;
    const parallel::ModelPlacement placement_;
    parallel::ParallelModel model_;
    MeshScorer scorer_;
    double last_agreement_seconds_ = 0;  // of all ranks
};

}  // namespace

MeshModel::MeshModel(const mpi::Comm& ranks, const Environment& environment,
                     const interop::ModelSource& source, const ScoringOptions& options,
                     std::span<const Work> tasks)
    : scoring_options_(options),
      config_(job_config(source, options, ranks.size())),
      context_(ranks, config_, with_device(environment, options.device)),
      stop_(*context_.control),
      options_(setup::trainer_options(config_, source.spec, context_.mesh.shape())),
      placement_(place_parameters(options_, context_.mesh.shape())),
      model_(options_.spec, placement_, context_.mesh, options_.model, parallel::ModelUse::Inference),
      scorer_(model_, options_, context_.mesh) {
    if (options.device == "gpu" && context_.device.is_cpu()) {
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

void MeshModel::log_peak() const {
    spdlog::info("tensors took at most {} on this rank", interop::bytes_text(context_.memory.peak_bytes()));
}

std::vector<RecordScore> MeshModel::score(std::span<const Tokens> records, const std::vector<Window>& windows,
                                          const Progress& progress) {
    return observe::explained(kLessForScores, [&] {
        auto scores = scorer_.score(records, windows, [&](double share) {
            end_if_stopped();
            if (progress) progress(share);
        });
        log_peak();
        return scores;
    });
}

std::unique_ptr<ResidentModel> MeshModel::resident(int64_t max_tokens, int num_sequences) {
    const auto type = at::TensorOptions(model_.precision().compute).device(model_.device());
    last_agreement_seconds_ = seconds_now();
    auto units = std::make_unique<MeshUnits>(model_, placement_, context_.mesh,
                                             [this] { any_rank_still_generates(/*own=*/true); });
    return std::make_unique<ResidentModel>(model_.spec(), std::move(units), type, max_tokens, num_sequences);
}

/// COLLECTIVE over kStepAxes, before each step and at the end: whether one of these ranks takes another step.
/// `own` says whether this rank does. Calls any_group_is_unfinished() if, on one of these ranks, two seconds
/// have passed since the last call.
bool MeshModel::any_rank_still_generates(bool own) {
    constexpr double kSecondsBetweenAgreements = 2;
    constexpr int64_t kGenerates = 1, kIsTime = 2;
    comm::Communicator& group = context_.mesh.group(kStepAxes);
    const bool is_time = seconds_now() - last_agreement_seconds_ >= kSecondsBetweenAgreements;
    const int64_t found = comm::maximum(group, (own ? kGenerates : 0) + (is_time ? kIsTime : 0));
    if (found < kIsTime) return found == kGenerates;
    any_group_is_unfinished(/*own=*/true);
    last_agreement_seconds_ = seconds_now();
    return comm::maximum(group, own ? kGenerates : 0) == kGenerates;
}

/// COLLECTIVE over all ranks: ends all of them, with a JobError, after a signal to one of them; else returns
/// whether the ranks of a group may still take steps. `own` says it of the group of this rank.
bool MeshModel::any_group_is_unfinished(bool own) {
    enum State : int64_t { Finished, Unfinished, Stopped };
    const State of_rank = own ? Unfinished : Finished;
    const int64_t state = comm::maximum(*context_.control, stop_requested() ? Stopped : of_rank);
    if (state == Stopped) throw stopped();
    return state == Unfinished;
}

/// COLLECTIVE: takes part in the steps and agreements of other ranks until all have finished.
void MeshModel::take_steps_until_all_are_done(ResidentModel& model) {
    while (any_rank_still_generates(/*own=*/false)) model.append_nothing();
    while (any_group_is_unfinished(/*own=*/false)) {
    }
}

std::vector<GeneratedText> MeshModel::generate(const tokenizer::Tokenizer& tokenizer,
                                               std::span<const Tokens> contexts,
                                               const GenerateOptions& options, int64_t max_tokens,
                                               const Progress& progress) {
    const size_t num_parts = context_.mesh.degree(layout::kDataAxes);
    return observe::explained(less_for_texts(contexts.size()), [&] {
        std::vector<Tokens> own;
        for (size_t i = context_.mesh.index(layout::kDataAxes); i < contexts.size(); i += num_parts) {
            own.push_back(contexts[i]);
        }
        const auto model = resident(max_tokens, num_side_by_side(scoring_options_, own.size()));
        const auto texts = continue_contexts(*model, tokenizer, own, options,
                                             scoring_options_.score.batch.num_tokens, progress);
        take_steps_until_all_are_done(*model);
        nlohmann::json rows = nlohmann::json::array();
        for (size_t i = 0; i < texts.size(); ++i) {
            rows.push_back(
                {context_.mesh.index(layout::kDataAxes) + i * num_parts, texts[i].text, texts[i].num_tokens});
        }
        auto all = gathered_texts(*context_.control, rows, contexts.size());
        log_peak();
        return all;
    });
}

std::unique_ptr<ScoringModel> mesh_model(const interop::ModelSource& source, const ScoringOptions& options,
                                         std::span<const Work> tasks, const mpi::Comm& ranks,
                                         const Environment& environment) {
    return std::make_unique<MeshModel>(ranks, environment, source, options, tasks);
}

}  // namespace argosy::eval

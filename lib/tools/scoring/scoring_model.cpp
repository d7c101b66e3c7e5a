#include "scoring/scoring_model.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "base/program.h"
#include "eval/device.h"
#include "eval/layerwise_model.h"
#include "eval/weights.h"
#include "model/parameter.h"
#include "observe/memory.h"
#include "observe/shortage.h"
#include "ops/ops_context.h"
#include "scoring/mesh_model.h"

namespace argosy::scoring {
namespace {

void log_model(const interop::ModelSource& source, const std::string& dtype, const std::string& place) {
    spdlog::info("{} ({}): {:.3g} parameters, computed in {} on {}", source.path.string(), name(source.form),
                 static_cast<double>(model::num_parameters(source.spec)), dtype, place);
}

/// The model of one process: read layer by layer for scores, and whole for texts.
class LayerwiseScoring : public ScoringModel {
  public:
    LayerwiseScoring(const interop::ModelSource& source, const ScoringOptions& options,
                     const eval::Device& device)
        : source_(source),
          options_(options),
          device_(device),
          type_(at::TensorOptions(eval::compute_type(options.dtype)).device(device.torch_device)),
          model_(*source.tensors, source.spec, type_) {}

    std::vector<eval::RecordScore> score(std::span<const eval::Tokens> records,
                                         const std::vector<eval::Window>& windows,
                                         const Progress& progress) override {
        eval::ScoreOptions score_options = options_.score;
        score_options.progress = until_stopped(progress);
        return observe::explained(needs_of_scores(options_, on_gpu()), [&] {
            return eval::score_windows(model_, records, windows, score_options);
        });
    }

    std::vector<eval::GeneratedText> generate(const tokenizer::Tokenizer& tokenizer,
                                              std::span<const eval::Tokens> contexts,
                                              const eval::GenerateOptions& options, int64_t max_tokens,
                                              const Progress& progress) override {
        const auto needs = needs_of_texts(options_, on_gpu(), contexts.size(), max_tokens, options);
        return observe::explained(needs, [&] {
            auto model = resident(max_tokens, num_side_by_side(options_, contexts.size()));
            return eval::continue_contexts(model, tokenizer, contexts, options,
                                           options_.score.batch.num_tokens, until_stopped(progress));
        });
    }

    int64_t generate_one(const tokenizer::Tokenizer& tokenizer, const tokenizer::Ids& prompt,
                         const eval::GenerateOptions& options, const TakeText& take) override {
        return observe::explained(needs_of_one_text(options_, on_gpu(), options), [&] {
            auto model = resident(std::ssize(prompt) + options.max_new_tokens, 1);
            return eval::generate(model, tokenizer, prompt, options, [&](const std::string& text) {
                throw_if_stop_requested();
                take(text);
            });
        });
    }

    std::string device_name() const override { return device_.name(); }

  private:
    bool on_gpu() const { return device_.gpu.has_value(); }
    static Progress until_stopped(const Progress& progress) {
        return [&progress](double share) {
            throw_if_stop_requested();
            progress(share);
        };
    }
    eval::ResidentModel resident(int64_t max_tokens, int num_sequences) const {
        return {*source_.tensors, source_.spec, type_, max_tokens, num_sequences};
    }

    const interop::ModelSource& source_;
    const ScoringOptions options_;
    const eval::Device device_;
    const at::TensorOptions type_;
    const ops::OpsContext context_;
    eval::LayerwiseModel model_;
};

}  // namespace

int num_side_by_side(const ScoringOptions& options, size_t num_contexts) {
    const int64_t limit = options.score.batch.num_windows;
    return static_cast<int>(
        std::min(limit > 0 ? limit : eval::kSideBySide, std::max<int64_t>(1, num_contexts)));
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

observe::MemoryNeeds needs_of_scores(const ScoringOptions& options, bool on_gpu) {
    return {on_gpu, options.dtype, options.score.batch.num_tokens, options.longest_window};
}

observe::MemoryNeeds needs_of_texts(const ScoringOptions& options, bool on_gpu, size_t num_contexts,
                                    int64_t max_tokens, const eval::GenerateOptions& generate_options) {
    return {on_gpu,
            options.dtype,
            options.score.batch.num_tokens,
            max_tokens,
            num_side_by_side(options, num_contexts),
            generate_options.max_new_tokens};
}

observe::MemoryNeeds needs_of_one_text(const ScoringOptions& options, bool on_gpu,
                                       const eval::GenerateOptions& generate_options) {
    return {.on_gpu = on_gpu, .dtype = options.dtype, .max_new_tokens = generate_options.max_new_tokens};
}

std::unique_ptr<ScoringModel> layerwise_model(const interop::ModelSource& source,
                                              const ScoringOptions& options) {
    const eval::Device device = eval::choose_device(options.device);
    // The meter counts the bytes of tensors. If host memory runs out, its error names the requested bytes.
    observe::MemoryMeter::install();
    ScoringOptions on_device = options;
    on_device.score.stream_bytes = eval::stream_bytes(device, options.score.stream_bytes);
    auto model = std::make_unique<LayerwiseScoring>(source, on_device, device);
    log_model(source, options.dtype, device.text());
    return model;
}

std::unique_ptr<ScoringModel> mesh_model(const interop::ModelSource& source, const ScoringOptions& options,
                                         std::span<const eval::Work> tasks, const mpi::Comm& ranks,
                                         const Environment& environment) {
    auto model = std::make_unique<MeshModel>(ranks, environment, source, options, tasks);
    log_model(source, options.dtype, fmt::format("{} ranks ({})", ranks.size(), model->mesh().name()));
    return model;
}

}  // namespace argosy::scoring

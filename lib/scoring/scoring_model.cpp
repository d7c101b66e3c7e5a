#include "scoring/scoring_model.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/program.h"
#include "eval/device.h"
#include "eval/layerwise_model.h"
#include "eval/weights.h"
#include "interop/byte_progress.h"
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

/// The model that one process reads layer by layer.
struct Layerwise {
    ops::OpsContext context;
    eval::LayerwiseModel model;
    eval::ScoreOptions options;
};

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

#include "eval/scoring_model.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/program.h"
#include "cuda/device.h"
#include "gpu/device.h"
#include "interop/layerwise_model.h"
#include "observe/memory.h"
#include "observe/shortage.h"
#include "ops/ops_context.h"

namespace argosy::eval {
namespace {

[[noreturn]] void refuse_gpu() {
    if (cuda::runtime_version() == 0) {
        throw UserError(
            "--device gpu, but this build has no CUDA: configure it with -DARGOSY_CUDA=ON (preset cuda), or "
            "use --device cpu");
    }
    throw UserError(
        "--device gpu, but this process sees no GPU: check nvidia-smi, CUDA_VISIBLE_DEVICES and the job's "
        "--gpus options, or use --device cpu");
}

/// Warns of slow settings that affect a single process, so NCCL's settings are left out.
void warn_of_slow_settings() {
    const auto variables = communication_variables();
    for (const SlowSetting& setting : slow_settings()) {
        const std::string* value = setting.harmful_value(variables);
        if (value == nullptr || std::string_view(setting.variable).starts_with("NCCL_")) continue;
        spdlog::warn("{}={}: {}; {}", setting.variable, *value, setting.why, setting.remedy);
    }
}

/// Where one process computes: the CPU, or the first GPU.
struct Device {
    c10::Device torch_device = c10::kCPU;  // LibTorch's name for it
    bool is_gpu = false;
    std::string text = {};  // for people
};

/// `wanted` is "cpu", "gpu" or "auto" (a GPU if this process sees one).
Device choose_device(const std::string& wanted) {
    const Device cpu{.text = fmt::format("the CPU with {} threads", ops::num_threads())};
    if (wanted == "cpu") return cpu;
    try {
        if (cuda::device_count() == 0 && wanted == "auto") return cpu;
        if (cuda::device_count() == 0) refuse_gpu();
        warn_of_slow_settings();
        const c10::Device device = gpu::use(0);
        const cuda::Device gpu = cuda::describe_device(0);
        return {device, true, fmt::format("{} ({})", gpu.name, gpu.pci_bus_id)};
    } catch (const RunError& error) {
        throw RunError("{}; or use --device cpu", error.what());
    }
}

/// Residual streams get 1/4 of a GPU's free memory, so that weights are read as rarely as possible; the rest
/// is for the weights of a unit and the activations of a batch.
ScoringOptions with_streams(ScoringOptions options, const Device& device) {
    if (device.is_gpu) options.score.stream_bytes = static_cast<int64_t>(cuda::free_memory_bytes()) / 4;
    return options;
}

/// The model of one process: read layer by layer for scores, and whole for texts.
class LayerwiseScoring : public ScoringModel {
  public:
    LayerwiseScoring(const interop::ModelSource& source, const ScoringOptions& options, Device device)
        : options_(with_streams(options, device)),
          device_(std::move(device)),
          model_(*source.tensors, source.spec,
                 at::TensorOptions(compute_type(options.dtype)).device(device_.torch_device),
                 options.longest_window) {}

    std::vector<RecordScore> score(std::span<const Tokens> records, const std::vector<Window>& windows,
                                   const Progress& progress) override {
        ScoreOptions score_options = options_.score;
        score_options.progress = until_stopped(progress);
        return observe::explained(kLessForScores,
                                  [&] { return score_windows(model_, records, windows, score_options); });
    }

    std::vector<GeneratedText> generate(const tokenizer::Tokenizer& tokenizer,
                                        std::span<const Tokens> contexts, const GenerateOptions& options,
                                        int64_t max_tokens, const Progress& progress) override {
        return observe::explained(less_for_texts(contexts.size()), [&] {
            ResidentModel model(model_, max_tokens, num_side_by_side(options_, contexts.size()));
            return continue_contexts(model, tokenizer, contexts, options, options_.score.batch.num_tokens,
                                     until_stopped(progress));
        });
    }

    std::string device_name() const override { return device_.is_gpu ? "cuda:0" : "cpu"; }
    std::string place() const override { return device_.text; }

  private:
    static Progress until_stopped(const Progress& progress) {
        return [&progress](double share) {
            throw_if_stop_requested();
            progress(share);
        };
    }

    const ScoringOptions options_;
    const Device device_;
    const ops::OpsContext context_;
    interop::LayerwiseModel model_;
};

}  // namespace

int num_side_by_side(const ScoringOptions& options, size_t num_contexts) {
    const int64_t limit = options.score.batch.num_windows;
    return static_cast<int>(std::min(limit > 0 ? limit : kSideBySide, std::max<int64_t>(1, num_contexts)));
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

at::ScalarType compute_type(const std::string& name) {
    if (name == "fp32") return at::kFloat;
    if (name == "bf16") return at::kBFloat16;
    throw UserError("--dtype is '{}'; it must be fp32 or bf16", name);
}

std::unique_ptr<ScoringModel> layerwise_model(const interop::ModelSource& source,
                                              const ScoringOptions& options) {
    Device device = choose_device(options.device);
    // The meter counts the bytes of tensors. If host memory runs out, its error names the requested bytes.
    observe::MemoryMeter::install();
    return std::make_unique<LayerwiseScoring>(source, options, std::move(device));
}

}  // namespace argosy::eval

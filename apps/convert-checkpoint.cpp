// Converts a model between its forms (sharded checkpoint, full file, Hugging Face folder), or describes a
// model.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <thread>

#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "base/output.h"
#include "base/program.h"
#include "base/progress.h"
#include "base/raw_file.h"
#include "checkpoint/partial_folder.h"
#include "command_line.h"
#include "going_home.h"
#include "interop/compare.h"
#include "interop/conversion_folder.h"
#include "interop/convert.h"
#include "interop/inspect.h"

namespace argosy {
namespace {

using checkpoint::Replace;
using interop::ConvertOptions;
using interop::ModelSource;

struct CommandLine {
    CLI::App app{
        "Converts a model between sharded checkpoints, full files, Hugging Face folders and checkpoints of\n"
        "torch.distributed.checkpoint, or describes one.\n"
        "SRC is a run's folder (its newest step is used), a step's folder, a full file, a Hugging Face\n"
        "folder, a checkpoint of TorchTitan or Megatron, or Meta's .pth files; the program detects which.\n"
        "DST is a step's folder for sharded, a file for full, a folder for hf and for dcp, from which\n"
        "TorchTitan goes on. It appears whole or not at all.",
        "convert-checkpoint"};
    std::string source, destination, to, type, assets, names, config;
    int64_t max_file_bytes = ConvertOptions().max_file_bytes;
    int num_shards = 0, num_threads = 0;
    bool model_only = false, force = false, verify = false, inspect = false;
    std::vector<std::string> accepted_keys;
};

void add_options(CommandLine& line) {
    CLI::App& app = line.app;
    app.footer(
        "Exit codes: 0 done; 1 failed while running (no space, stopped by a signal); 2 bad command line or\n"
        "input; 3 SRC is damaged or, with --verify, not finite, or a tensor differs. Unless the code is 0,\n"
        "DST does not exist.\n"
        "\n"
        "Convert a run's newest step for transformers:\n"
        "  convert-checkpoint run model-hf --to hf --dtype bf16 --verify\n"
        "Convert it to one file, from which a run can resume:\n"
        "  convert-checkpoint run model.h5 --to full\n"
        "Take a TorchTitan run here, with its optimizer:\n"
        "  convert-checkpoint outputs/checkpoint start --to sharded --assets assets/hf/Llama-3.1-8B\n"
        "Go home to TorchTitan with step 5000 of a run, and its optimizer:\n"
        "  convert-checkpoint run outputs/step-5000 --to dcp; mv outputs/step-5000 outputs/checkpoint\n"
        "Describe a file and verify its checksums:\n"
        "  convert-checkpoint --inspect model.h5 --verify");
    app.add_option("SRC", line.source, "the model to read")->required();
    app.add_option("DST", line.destination, "the model to write; its parent folder must exist");
    app.add_option("--to", line.to, "form of DST")->check(CLI::IsMember({"sharded", "full", "hf", "dcp"}));
    app.add_option("--shards", line.num_shards,
                   "number of files of a sharded checkpoint, which split each tensor on its first\n"
                   "dim; default: as many as SRC has, else 1")
        ->check(CLI::Range(1, 99999));
    app.add_option("--dtype", line.type,
                   "type of the weights: fp32, bf16 or fp16, rounded to nearest, ties to even;\n"
                   "default: as in SRC. The optimizer's state keeps its type")
        ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
    app.add_flag("--model-only", line.model_only, "omit the optimizer's state; hf always omits it");
    app.add_option("--max-shard-size", line.max_file_bytes,
                   "maximum bytes of tensors in one file of hf and dcp: 5GB, 512MiB, 1000000")
        ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
        ->check(CLI::PositiveNumber)
        ->option_text("SIZE=5GB");
    app.add_option("--dcp-names", line.names,
                   "TorchTitan's names of the tensors of dcp: of its current version or of 0.2;\n"
                   "default: current")
        ->check(CLI::IsMember({"current", "v0.2"}));
    app.add_option("--config", line.config,
                   "a run's configuration (TOML), whose learning rate, betas and weight decay the\n"
                   "optimizer of dcp gets; default: that of the run which saved SRC")
        ->option_text("FILE");
    app.add_flag("--force", line.force,
                 "replace DST if it is a checkpoint or a model that a conversion wrote");
    app.add_flag("--verify", line.verify,
                 "before DST appears, read both models again, compare every element, run a few\n"
                 "tokens through both, layer by layer, and compare the logits; exit 3 if they\n"
                 "differ, or if a weight is NaN or infinite. With --inspect: verify all checksums");
    add_accepted_keys(app, line.accepted_keys);
    add_assets(app, line.assets);
    app.add_option("--threads", line.num_threads,
                   "threads that read and write; default: one per core, at most 4")
        ->check(CLI::Range(1, 256));
    app.add_flag("--inspect", line.inspect,
                 "describe SRC: step, mesh, model, longest context, tensors, types, shapes,\n"
                 "sizes, checksums; exit 3 if a shard is missing or of another save");
}

/// Refuses options that would have no effect.
void check_options(const CommandLine& line) {
    const auto given = [&](const char* option) { return line.app.count(option) > 0; };
    const auto refuse = [&](std::initializer_list<const char*> options, const char* why) {
        for (const char* option : options) {
            if (given(option)) throw UserError("{} {}", option, why);
        }
    };
    if (line.inspect) {
        refuse({"DST", "--to", "--shards", "--dtype", "--model-only", "--max-shard-size", "--force",
                "--dcp-names", "--config"},
               "cannot be combined with --inspect, which writes nothing");
        return;
    }
    if (!given("DST")) throw UserError("DST is missing: convert-checkpoint SRC DST --to sharded|full|hf|dcp");
    if (!given("--to")) throw UserError("--to is missing: sharded, full, hf or dcp");
    if (line.to != "sharded") refuse({"--shards"}, "needs --to sharded");
    if (line.to != "hf" && line.to != "dcp") refuse({"--max-shard-size"}, "needs --to hf or --to dcp");
    if (line.to != "dcp") refuse({"--dcp-names", "--config"}, "needs --to dcp");
    if (line.model_only) refuse({"--config"}, "is for the optimizer, which --model-only omits");
}

ConvertOptions convert_options(const CommandLine& line) {
    ConvertOptions options{.num_shards = line.num_shards, .max_file_bytes = line.max_file_bytes};
    options.to = line.to == "sharded" ? interop::Form::Sharded
                 : line.to == "full"  ? interop::Form::Full
                 : line.to == "dcp"   ? interop::Form::Distributed
                                      : interop::Form::HuggingFace;
    if (line.names == "v0.2") options.names = interop::TorchTitanNames::V02;
    if (line.model_only) options.content = interop::Content::ModelOnly;
    if (line.type == "fp32") options.type = ElementType::Float32;
    if (line.type == "bf16") options.type = ElementType::BFloat16;
    if (line.type == "fp16") options.type = ElementType::Float16;
    return options;
}

/// Says what TorchTitan needs to go on.
void say_next(const ConvertOptions& options) {
    if (options.optimizer) {
        spdlog::info(
            "TorchTitan goes on from it with checkpoint.exclude_from_loading = [\"dataloader\"], since the "
            "place in the data is another one there; remove the setting once TorchTitan has saved, or each "
            "start begins with the first sample again");
    } else {
        spdlog::info("it has the weights alone: TorchTitan begins with it by checkpoint.initial_load_path");
    }
}

/// The bytes that a folder of torch has beside the elements: the copy of a tied head, and frames of tensors.
int64_t more_bytes_of_torch(const ModelSource& source,
                            const std::vector<interop::TensorConversion>& conversions) {
    constexpr int64_t kBytesOfTensor = 2048;
    int64_t bytes = std::ssize(conversions) * kBytesOfTensor;
    for (const interop::TensorConversion& conversion : conversions)
        if (source.spec.tied_embeddings && conversion.to.name == "model/tok_embeddings.weight")
            bytes += conversion.to.num_bytes();
    return bytes;
}

/// The result's files are open at the same time.
void raise_file_limit() {
    rlimit limit = {};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int num_threads(const CommandLine& line) {
    constexpr int kEnough = 4;  // more threads were not faster: memory and disk are the limit
    if (line.num_threads > 0) return line.num_threads;
    return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kEnough);
}

ModelSource open_source(const CommandLine& line) {
    return interop::open_model(line.source, {.accepted = {line.accepted_keys}, .assets = line.assets});
}

ExitCode inspect(const CommandLine& line) {
    const ModelSource source = open_source(line);
    interop::Inspection inspection{.source = source};
    if (source.checkpoint && !line.verify) {
        // HDF5 shows a missing shard as NaN, so it is found even without --verify.
        std::vector<std::string> missing = source.checkpoint->file_faults();
        if (!missing.empty()) inspection.faults = std::move(missing);
    } else if (line.verify) {
        inspection.faults = source.checkpoint ? interop::faults(*source.checkpoint, num_threads(line))
                                              : std::vector<std::string>();
    }
    print_text(inspection_text(inspection), stdout);
    return inspection.faults && !inspection.faults->empty() ? ExitCode::CheckFailed : ExitCode::Done;
}

/// Compares the logits of the two models for a few sequences of tokens. Returns no text if they agree.
std::vector<std::string> logit_differences(const ModelSource& source, const ModelSource& result) {
    Progress progress("comparing logits");
    const auto show = [&](double share) {
        throw_if_stop_requested();
        if (progress.due()) progress.show(share);
    };
    const auto compared =
        interop::compare_logits({*source.tensors, source.spec}, {*result.tensors, result.spec}, show);
    if (!compared.passed()) return {compared.text()};
    spdlog::info("{}", compared.text());
    return {};
}

/// Runs --verify and returns the differences. Logits are compared only if all elements are equal.
std::vector<std::string> verify(const ModelSource& source, const ModelSource& result,
                                const std::vector<interop::TensorConversion>& conversions,
                                const interop::StreamOptions& stream_options) {
    const auto found = interop::differences(source, result, conversions, stream_options);
    return found.empty() ? logit_differences(source, result) : found;
}

/// Refuses what TorchTitan could not load, and sets the optimizer's settings.
void prepare_for_torchtitan(const CommandLine& line, const ModelSource& source,
                            const std::filesystem::path& destination, ConvertOptions& options) {
    interop::require_torchtitan_model(source);
    const bool is_saved = interop::has_optimizer(source), has_states = is_saved && !line.model_only;
    check_titan_name(destination, source, has_states);
    if (!is_saved && !line.config.empty())
        throw UserError("--config is for the optimizer, which {} has not", source.path.string());
    if (has_states)
        options.optimizer = settings_at_home(line.config, source, options.names);
    else if (options.names == interop::TorchTitanNames::V02 && interop::unties_head(source.spec))
        spdlog::warn(
            "TorchTitan 0.2 trains the head of a Llama apart from the embedding table, also this one's");
    raise_file_limit();
}

ExitCode convert(const CommandLine& line) {
    ConvertOptions options = convert_options(line);
    const Replace replace = line.force ? Replace::Yes : Replace::No;
    const ModelSource source = open_source(line);
    const std::filesystem::path destination = checkpoint::without_slash(line.destination);
    interop::check_output(destination, options.to, replace, source.path);
    if (options.to == interop::Form::Sharded) {
        interop::check_step_name(destination, source.description ? source.description->step : 0);
    }

    const bool to_torch = options.to == interop::Form::Distributed;
    if (to_torch) prepare_for_torchtitan(line, source, destination, options);
    const auto conversions = interop::plan(source, options);
    const int64_t num_bytes = interop::num_source_bytes(conversions);
    spdlog::info("{} ({}): {} tensors, {}", source.path.string(), name(source.form), conversions.size(),
                 interop::bytes_text(num_bytes));
    const auto stream_options = [&](interop::ByteProgress& progress) {
        return interop::StreamOptions{
            .num_threads = num_threads(line), .progress = &progress, .stopped = stop_requested};
    };
    int64_t result_bytes = to_torch ? more_bytes_of_torch(source, conversions) : 0;
    for (const interop::TensorConversion& conversion : conversions) result_bytes += conversion.to.num_bytes();
    const checkpoint::PartialFolder partial(destination);  // first removes what a killed conversion left
    require_space(folder_of(destination), result_bytes, destination.string());
    std::filesystem::path result;
    std::string summary;
    {
        interop::ByteProgress progress("converting", num_bytes);
        result = interop::convert(source, conversions, options, partial.path(), stream_options(progress));
        summary = progress.summary();
    }
    spdlog::info("converted {}", summary);
    if (line.verify) {
        interop::ByteProgress progress("verifying", num_bytes);
        interop::OpenOptions open{.accepted = {.all = true}};
        if (to_torch) open.spec = source.spec;
        const auto found =
            verify(source, interop::open_model(result, open), conversions, stream_options(progress));
        for (const std::string& difference : found) spdlog::error("{}", difference);
        if (!found.empty()) {
            throw Error(ExitCode::CheckFailed, Reach::AllRanks,
                        fmt::format("--verify found {} fault{} in {} and its conversion, which was removed",
                                    found.size(), found.size() == 1 ? "" : "s", source.path.string()));
        }
        spdlog::info("verified {}", progress.summary());
    }
    interop::publish_conversion(result, destination, replace);
    spdlog::info("wrote {} ({})", destination.string(), name(options.to));
    if (to_torch) say_next(options);
    return ExitCode::Done;
}

ExitCode run(int argc, char** argv) {
    start_log(Environment::read().log_level, 0, 1);
    catch_stop_requests(StopSignals::Terminal);
    CommandLine line;
    add_options(line);
    if (!parse_options(line.app, argc, argv)) return ExitCode::Done;
    check_options(line);
    return line.inspect ? inspect(line) : convert(line);
}

}  // namespace
}  // namespace argosy

int main(int argc, char** argv) {
    return argosy::end_process(
        argosy::run_program("convert-checkpoint", [&] { return argosy::run(argc, argv); }));
}

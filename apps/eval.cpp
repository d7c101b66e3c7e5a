// Evaluates a checkpoint of any form: token perplexity over records of tokens.
#include <CLI/CLI.hpp>
#include <cmath>

#include "base/clock.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "base/output.h"
#include "base/program.h"
#include "base/progress.h"
#include "command_line.h"
#include "eval/device.h"
#include "eval/layerwise_model.h"
#include "eval/perplexity.h"
#include "eval/results.h"
#include "eval/weights.h"
#include "eval/windows.h"
#include "interop/byte_progress.h"
#include "interop/conversion_folder.h"
#include "interop/model_source.h"
#include "interop/transfer.h"
#include "observe/memory.h"
#include "observe/shortage.h"
#include "ops/ops_context.h"

namespace argosy {
namespace {

constexpr const char* kAbout =
    "Evaluates a checkpoint: perplexity over tokens, with results in the layout of lm-evaluation-harness.\n"
    "\n"
    "A task is a JSONL file of {\"tokens\": [...]} records; its name is the file's name without extension.\n"
    "The first token of a record is context, so records of fewer than two tokens are left out and counted.\n"
    "No token is added; token_perplexity =\n"
    "exp(-sum of log-likelihoods / sum of (length - 1)). Records of {\"text\"} and multiple choice, as in\n"
    "tasks/ of `prepare-data synthetic`, need a tokenizer, which eval does not have yet.\n";

struct Options {
    std::string model, dtype = "fp32", device = "auto";
    std::vector<std::filesystem::path> tasks;
    std::filesystem::path output;
    std::vector<std::string> accepted_keys;
    eval::PerplexityOptions perplexity;
    int num_threads = 0;
};

void add_options(CLI::App& app, Options& options) {
    app.footer(
        "Exit codes: 0 done; 1 failed while running; 2 bad command line or input; 3 the checkpoint is "
        "damaged.\n"
        "Unless the code is 0, --output is not written, except if only writing to stdout failed.\n"
        "\n"
        "  eval --model run --tasks tokens.jsonl --output results.json");
    app.add_option("--model", options.model,
                   "a checkpoint of any form: a run's folder (its newest whole step), a step,\n"
                   "a full file, a Hugging Face folder")
        ->required();
    add_accepted_keys(app, options.accepted_keys);
    app.add_option("--tasks", options.tasks, "JSONL files, separated by commas; -: stdin")
        ->required()
        ->delimiter(',');
    app.add_option("--output", options.output,
                   "JSON file for the results; replaces only earlier results. -: stdout, and the\ntable goes "
                   "to stderr")
        ->required();
    app.add_option("--dtype", options.dtype,
                   "type of the computation: fp32, bf16 or fp16, for every checkpoint type. On\n"
                   "a GPU bf16 is many times faster, and long windows need far less memory")
        ->capture_default_str();
    app.add_option("--device", options.device,
                   "device of the computation: cpu, gpu (the first of CUDA_VISIBLE_DEVICES), or\n"
                   "auto: gpu if there is one")
        ->check(CLI::IsMember({"auto", "cpu", "gpu"}))
        ->option_text("TEXT=auto");
    app.add_option("--max-length", options.perplexity.max_length,
                   "maximum number of tokens in a window; longer records are split into windows,\n"
                   "and each token is predicted once. Default: the longest record")
        ->check(at_least_one());
    app.add_option("--batch-tokens", options.perplexity.batch_tokens,
                   "tokens in one batch, padding included; results do not depend on it, except\n"
                   "for rounding on a GPU")
        ->check(at_least_one())
        ->capture_default_str();
    app.add_option("--threads", options.num_threads,
                   "compute threads; default: OMP_NUM_THREADS, else all cores")
        ->check(at_least_one());
}

/// Verifies all weights before the run. The run itself may read part of a stored slab, and a check covers
/// only a whole slab.
void check_bytes(const interop::ModelSource& source, const Environment& environment) {
    if (!source.checkpoint) return;  // files of Hugging Face have no checks
    const auto weights = interop::plan_transfers(source, interop::Content::ModelOnly, std::nullopt);
    interop::ByteProgress progress("checking", interop::num_source_bytes(weights), environment);
    const interop::TransferOptions transfer_options{
        .num_threads = ops::num_threads(), .progress = &progress, .stopped = stop_requested};
    interop::run_transfers(source, weights, transfer_options, [](auto&&...) {});
}

void warn_of_long_windows(const interop::ModelSource& source, const std::vector<eval::TokenTask>& tasks,
                          int64_t max_length) {
    for (const eval::TokenTask& task : tasks) {
        const int64_t longest = eval::longest_window(task.records, max_length);
        if (longest <= source.spec.max_context) continue;
        spdlog::warn(
            "{}: windows have up to {} tokens, and the model's max_position_embeddings is {}; --max-length "
            "splits longer records",
            task.path.string(), longest, source.spec.max_context);
    }
}

void warn_of_short_records(const std::vector<eval::TokenTask>& tasks) {
    for (const eval::TokenTask& task : tasks) {
        if (task.num_short == 0) continue;
        spdlog::warn(
            "{}: {} of {} records are left out, because they have fewer than two tokens and so predict none; "
            "the first is {}",
            task.name, task.num_short, task.num_short + std::ssize(task.records), task.first_short);
    }
}

/// Scores the records of a task. Throws UserError if the log-likelihood of a record is not finite, because
/// the mean would not be finite either.
eval::TaskResult run_task(const eval::LayerwiseModel& model, const eval::TokenTask& task,
                          eval::PerplexityOptions options, const Environment& environment) {
    Progress progress("evaluating " + task.name, environment);
    options.progress = [&](double share) {
        throw_if_stop_requested();
        if (progress.due()) progress.show(share);
    };
    const auto scores = eval::score_records(model, task.records, options);
    for (size_t i = 0; i < scores.size(); ++i) {
        if (std::isfinite(scores[i].log_likelihood)) continue;
        throw UserError(
            "{}: the model's log-likelihood of the record is {}; its weights are not finite, or too large "
            "for --dtype (fp32 is the widest)",
            task.places[i], scores[i].log_likelihood);
    }
    const eval::RecordScore score = eval::total(scores);
    spdlog::info("{}: {} tokens of {} records in {:.1f} s", task.name, score.num_predicted, scores.size(),
                 progress.seconds());
    return {task.name, task.path.string(), std::ssize(scores), score, task.num_short};
}

/// Refuses an output path that would replace an input.
void check_output(const Options& options, const interop::ModelSource& source) {
    for (const auto& task : options.tasks) {
        std::error_code none;
        if (!std::filesystem::equivalent(task, options.output, none)) continue;
        throw UserError("--output {} is a task file and would replace it; name another file",
                        options.output.string());
    }
    if (!is_standard_stream(options.output)) interop::refuse_inside(options.output, source.path);
}

/// The inputs of an evaluation. Opening them first reports user mistakes before a GPU is used.
struct Inputs {
    interop::ModelSource source;
    std::vector<eval::TokenTask> tasks;
};

Inputs open_inputs(const Options& options) {
    Inputs inputs{interop::open_model(options.model, {options.accepted_keys}), {}};
    inputs.tasks = eval::read_token_tasks(options.tasks, inputs.source.spec.vocab_size);
    warn_of_short_records(inputs.tasks);
    warn_of_long_windows(inputs.source, inputs.tasks, options.perplexity.max_length);
    check_output(options, inputs.source);
    return inputs;
}

void evaluate(Options options, const Environment& environment) {
    const double started = seconds_now();
    if (options.num_threads > 0) ops::set_num_threads(options.num_threads);
    const at::ScalarType type = eval::compute_type(options.dtype);
    eval::Evaluation evaluation{.model = options.model,
                                .dtype = options.dtype,
                                .batch_tokens = options.perplexity.batch_tokens,
                                .max_length = options.perplexity.max_length,
                                .started = seconds_since_1970()};
    const auto [source, tasks] = open_inputs(options);
    ResultFile output(options.output, is_json_of_format(eval::kResultsMark));
    const eval::Device device = eval::choose_device(options.device);
    // The meter counts the bytes of tensors. If host memory runs out, its error names the requested bytes.
    observe::MemoryMeter::install();
    const ops::OpsContext context;
    options.perplexity.stream_bytes = eval::stream_bytes(device, options.perplexity.stream_bytes);
    const eval::LayerwiseModel model(*source.tensors, source.spec,
                                     at::TensorOptions(type).device(device.torch_device));
    evaluation.device = device.name();
    evaluation.num_parameters = model::num_parameters(source.spec);

    spdlog::info("{} ({}): {:.3g} parameters, computed in {} on {}", source.path.string(), name(source.form),
                 static_cast<double>(evaluation.num_parameters), options.dtype, device.text());
    check_bytes(source, environment);
    for (const eval::TokenTask& task : tasks) {
        const int64_t longest = eval::longest_window(task.records, options.perplexity.max_length);
        try {
            evaluation.tasks.push_back(run_task(model, task, options.perplexity, environment));
        } catch (...) {
            observe::explain_shortage(
                {device.gpu.has_value(), options.dtype, options.perplexity.batch_tokens, longest});
        }
    }
    evaluation.seconds = seconds_now() - started;
    output.write(eval::results_json(evaluation));
    print_text(eval::results_table(evaluation), is_standard_stream(options.output) ? stderr : stdout);
}

ExitCode run(int argc, char** argv) {
    const Environment environment = Environment::read();
    start_log(environment.log_level, 0, 1);
    catch_stop_requests(StopSignals::Terminal);
    CLI::App app{kAbout, "eval"};
    Options options;
    add_options(app, options);
    if (!parse_options(app, argc, argv)) return ExitCode::Done;
    evaluate(options, environment);
    return ExitCode::Done;
}

}  // namespace
}  // namespace argosy

int main(int argc, char** argv) {
    return argosy::run_program("eval", [&] { return argosy::run(argc, argv); });
}

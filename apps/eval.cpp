// Evaluates a checkpoint of any form over tasks: perplexities, multiple choice, last words.
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
#include "eval/generate.h"
#include "eval/readers.h"
#include "eval/requests.h"
#include "eval/resident_model.h"
#include "eval/results.h"
#include "eval/task_file.h"
#include "eval/task_result.h"
#include "eval/weights.h"
#include "interop/byte_progress.h"
#include "interop/conversion_folder.h"
#include "interop/model_source.h"
#include "interop/transfer.h"
#include "mpi/comm.h"
#include "mpi/program.h"
#include "ops/ops_context.h"
#include "scoring/scoring_model.h"
#include "tokenizer/tokenizer.h"

namespace argosy {
namespace {

constexpr const char* kAbout =
    "Evaluates a checkpoint over tasks, with the scores, standard errors and results of "
    "lm-evaluation-harness.\n"
    "\n"
    "A task is a JSONL file; its name is the file's name without extension. Its records are one of\n"
    "  {\"text\"}                    word, byte and token perplexity and bits per byte of texts\n"
    "  {\"query\",\"choices\",\"gold\"}  acc, acc_norm, acc_bytes: whether choice number `gold` is the "
    "likeliest\n"
    "                              the same with \"context\" for \"query\"\n"
    "  {\"context\",\"continuation\"}  acc: whether the model continues so; perplexity of the continuation\n"
    "  {\"tokens\"}                  perplexity and accuracy of tokens after a record's first one, which "
    "is\n"
    "                              context. Records of fewer than two tokens are left out and counted\n"
    "or have the layout of a public data set, which READER= names.\n"
    "\n"
    "With --generate it continues a text instead; the continuation alone goes to stdout.\n"
    "\n"
    "One process reads the weights layer by layer and needs memory for one layer. Under mpirun or srun the\n"
    "ranks hold the weights: each all of them, or its share on the axes of --*-parallel-degree. The results\n"
    "are the same. Each rank takes one GPU of its node if there are any.\n";

struct Options {
    std::string model, dtype = "fp32", device = "auto", tokenizer;
    std::vector<std::string> tasks;
    std::filesystem::path output;
    bool log_samples = false;
    std::vector<std::string> accepted_keys;
    eval::TaskOptions task;
    int64_t max_length = 0;
    eval::ScoreOptions score;
    std::optional<std::string> prompt;  // of --generate
    eval::GenerateOptions generate;
    int num_threads = 0;
    scoring::Degrees degrees;
};

/// The readers: those that records name by their keys, and in a second line those of public data sets.
std::string reader_names() {
    std::string own, others;
    for (const eval::Reader& reader : eval::readers()) {
        (reader.keys.empty() ? others : own) += fmt::format("{} ", reader.name);
    }
    return fmt::format("{}\n{}", own, others);
}

void add_options(CLI::App& app, Options& options) {
    app.footer(
        "Exit codes: 0 done; 1 failed while running; 2 bad command line or input; 3 the checkpoint is "
        "damaged.\n"
        "Unless the code is 0, --output is not written, except if only writing to stdout failed.\n"
        "\n"
        "  eval --model run --tasks tokens.jsonl --output results.json\n"
        "  mpirun -n 8 eval --model run --tensor-parallel-degree 4 --tasks tokens.jsonl --output "
        "results.json");
    app.add_option("--model", options.model,
                   "a checkpoint of any form: a run's folder (its newest whole step), a step,\n"
                   "a full file, a Hugging Face folder")
        ->required();
    add_accepted_keys(app, options.accepted_keys);
    app.add_option("--tasks", options.tasks,
                   fmt::format("[READER=]FILE, separated by commas; -: stdin. Readers:\n{}", reader_names()))
        ->delimiter(',');
    app.add_option("--output", options.output,
                   "JSON file for the results; replaces only earlier results. -: stdout, and the\ntable goes "
                   "to stderr");
    app.add_option("--tokenizer", options.tokenizer,
                   "tokenizer.json, a folder with one, or `bytes`; default: the model folder's")
        ->option_text("PATH|bytes");
    app.add_option("--limit", options.task.limit, "maximum number of records of a task")
        ->check(at_least_one());
    app.add_option("--num-fewshot", options.task.num_fewshot,
                   "examples before each question, from --fewshot-file, chosen as the harness does")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--fewshot-file", options.task.fewshot_file, "JSONL file with records like the tasks'");
    app.add_flag("--log-samples", options.log_samples,
                 "also write samples_TASK.jsonl beside --output: requests and scores of records");
    app.add_option("--dtype", options.dtype,
                   "type of the computation: fp32, bf16 or fp16, for every checkpoint type. On\n"
                   "a GPU bf16 is many times faster, and long windows need far less memory")
        ->capture_default_str();
    app.add_option("--device", options.device,
                   "device of the computation: cpu, gpu (the first of CUDA_VISIBLE_DEVICES), or\n"
                   "auto: gpu if there is one")
        ->check(CLI::IsMember({"auto", "cpu", "gpu"}))
        ->option_text("TEXT=auto");
    app.add_option("--max-length", options.max_length,
                   "maximum number of tokens in a window; longer texts are split into windows, and\n"
                   "each token is predicted once; longer prompts lose their beginning. Default: the\n"
                   "model's max_position_embeddings; the longest record for {\"tokens\"}")
        ->check(at_least_one());
    app.add_option("--batch-tokens", options.score.batch.num_tokens,
                   "tokens in one batch, padding included; results do not depend on it, except\n"
                   "for rounding on a GPU")
        ->check(at_least_one())
        ->capture_default_str();
    app.add_option("--batch-size", options.score.batch.num_windows, "maximum number of windows in one batch")
        ->check(at_least_one());
    app.add_option("--threads", options.num_threads,
                   "compute threads; default: OMP_NUM_THREADS, else all cores")
        ->check(at_least_one());
}

void add_degrees(CLI::App& app, scoring::Degrees& degrees) {
    const auto add = [&](const char* name, int& degree, const char* description) {
        app.add_option(name, degree, description)->check(at_least_one())->capture_default_str();
    };
    add("--tensor-parallel-degree", degrees.tensor, "ranks that share the matrices of each layer");
    add("--pipeline-parallel-degree", degrees.pipeline, "ranks that share the layers");
    add("--data-parallel-shard-degree", degrees.shard,
        "ranks that share the weights, and gather each layer's for each batch; ranks that\n"
        "the three degrees leave hold copies");
}

void add_generate_options(CLI::App& app, Options& options) {
    app.add_option("--generate", options.prompt, "the text to continue")
        ->excludes(app.get_option("--tasks"))
        ->excludes(app.get_option("--output"));
    app.add_option("--max-new-tokens", options.generate.max_new_tokens, "maximum number of generated tokens")
        ->check(at_least_one())
        ->capture_default_str();
    app.add_option("--temperature", options.generate.sampling.temperature,
                   "0: the likeliest token each time; else logits are divided by it, tokens drawn")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    app.add_option("--top-p", options.generate.sampling.top_p,
                   "draw from the fewest tokens that together have this probability")
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str();
    app.add_option("--seed", options.generate.sampling.seed, "of the drawing")->capture_default_str();
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

/// The inputs of an evaluation. Opening them first reports user mistakes before a GPU is used.
struct Inputs {
    interop::ModelSource source;
    std::string tokenizer_name;
    std::vector<eval::Work> work;
};

/// The file that --log-samples writes for a task.
std::filesystem::path samples_path(const Options& options, const std::string& task) {
    return options.output.parent_path() / fmt::format("samples_{}.jsonl", task);
}

/// Refuses an output path that would replace an input.
void check_output(const Options& options, std::span<const eval::TaskName> tasks,
                  const interop::ModelSource& source) {
    for (const eval::TaskName& task : tasks) {
        std::error_code none;
        if (!std::filesystem::equivalent(task.path, options.output, none)) continue;
        throw UserError("--output {} is a task file and would replace it; name another file",
                        options.output.string());
    }
    if (!is_standard_stream(options.output)) {
        interop::refuse_inside(options.output, source.path);
    } else if (options.log_samples) {
        throw UserError("--log-samples writes files beside --output, which is stdout; name a file");
    }
}

void refuse_stdin(std::span<const eval::TaskName> tasks) {
    for (const eval::TaskName& task : tasks) {
        if (!is_standard_stream(task.path)) continue;
        throw UserError("--tasks -: several ranks cannot read stdin; write the records to a file");
    }
}

Inputs open_inputs(Options& options, const mpi::Comm* ranks) {
    if (options.task.num_fewshot > 0 && options.task.fewshot_file.empty()) {
        throw UserError("--num-fewshot {} needs --fewshot-file", options.task.num_fewshot);
    }
    Inputs inputs{interop::open_model(options.model, {options.accepted_keys}), "", {}};
    options.task.vocab_size = inputs.source.spec.vocab_size;
    const std::vector<eval::TaskName> names = eval::task_names(options.tasks);
    if (ranks != nullptr) refuse_stdin(names);
    check_output(options, names, inputs.source);
    const auto tokenizer = eval::open_tokenizer(options.tokenizer, inputs.source);
    if (tokenizer) inputs.tokenizer_name = tokenizer->info().name;
    for (const eval::TaskName& name : names) {
        inputs.work.push_back(eval::make_work(eval::read_task(name, options.task), tokenizer.get(),
                                              options.max_length, inputs.source));
    }
    return inputs;
}

eval::TaskResult run_task(const scoring::ScoringModel& model, eval::Work work, bool shows_progress,
                          const Environment& environment) {
    const double started = seconds_now();
    std::optional<Progress> progress;
    if (shows_progress) progress.emplace("evaluating " + work.task.file.name, environment);
    const auto show = [&](double share) {
        if (progress && progress->due()) progress->show(share);
    };
    const auto score = [&](auto records, const auto& windows) { return model.score(records, windows, show); };
    eval::TaskResult result = eval::evaluate(score, std::move(work.task), work.requests);
    spdlog::info("{}: {} tokens of {} records in {:.1f} s", result.task.file.name, result.num_predicted,
                 result.task.documents.size(), seconds_now() - started);
    return result;
}

/// The files of the results, locked from the beginning and written at the end.
class Outputs {
  public:
    Outputs(const Options& options, std::span<const eval::Work> work)
        : results_(options.output, is_json_of_format(eval::kResultsMark)) {
        if (!options.log_samples) return;
        for (const eval::Work& each : work) {
            samples_.push_back(std::make_unique<ResultFile>(samples_path(options, each.task.file.name),
                                                            begins_with("{\"doc_id\":0,")));
        }
    }

    void write(const eval::Evaluation& evaluation) {
        for (size_t i = 0; i < samples_.size(); ++i) {
            samples_[i]->write(eval::samples_jsonl(evaluation.tasks[i]));
        }
        results_.write(eval::results_json(evaluation));
    }

  private:
    ResultFile results_;
    std::vector<std::unique_ptr<ResultFile>> samples_;
};

/// `ranks` is null in one process. Verifies the weights there; ranks verify what they load.
scoring::ScoringModel make_model(const Options& options, const interop::ModelSource& source,
                                 std::span<const eval::Work> work, const mpi::Comm* ranks,
                                 const Environment& environment) {
    scoring::ScoringOptions of_model{.dtype = options.dtype,
                                     .device = options.device,
                                     .score = options.score,
                                     .degrees = options.degrees,
                                     .accepted_keys = options.accepted_keys};
    for (const eval::Work& each : work) {
        of_model.longest_window = std::max(of_model.longest_window, eval::longest(each.requests.windows));
    }
    if (ranks != nullptr) return scoring::mesh_model(source, of_model, *ranks, environment);
    scoring::mesh_request(options.degrees, /*num_ranks=*/1);  // throws if a degree is not 1
    check_bytes(source, environment);
    return scoring::layerwise_model(source, of_model);
}

/// `ranks` is null in a process that no launcher started as one of several. Every rank reads the tasks and
/// has the results; rank 0 writes them.
void evaluate(Options options, const Environment& environment, const mpi::Comm* ranks) {
    const double started = seconds_now();
    eval::compute_type(options.dtype);  // throws before anything is read
    eval::Evaluation evaluation{.model = options.model,
                                .dtype = options.dtype,
                                .batch_tokens = options.score.batch.num_tokens,
                                .batch_size = options.score.batch.num_windows,
                                .max_length = options.max_length,
                                .limit = options.task.limit,
                                .started = seconds_since_1970()};
    auto [source, tokenizer_name, all_work] = open_inputs(options, ranks);
    const bool writes = ranks == nullptr || ranks->rank() == 0;
    std::optional<Outputs> outputs;
    try {
        if (writes) outputs.emplace(options, all_work);
    } catch (const Error& error) {  // of rank 0 alone
        throw Error(error.code(), Reach::OneRank, error.what());
    }
    evaluation.tokenizer = tokenizer_name;
    evaluation.num_parameters = model::num_parameters(source.spec);
    const scoring::ScoringModel model = make_model(options, source, all_work, ranks, environment);
    const auto run_tasks = [&] {
        for (eval::Work& work : all_work) {
            evaluation.tasks.push_back(run_task(model, std::move(work), writes, environment));
        }
    };
    if (ranks) mpi::print_errors_first("eval", *ranks, [&] { model.explain(run_tasks); });
    if (!ranks) model.explain(run_tasks);
    evaluation.device = model.device_name;
    if (!writes) return;
    evaluation.seconds = seconds_now() - started;
    outputs->write(evaluation);
    print_text(eval::results_table(evaluation), is_standard_stream(options.output) ? stderr : stdout);
}

/// Streams the continuation of a prompt to stdout.
void generate(Options options, const Environment& environment, const mpi::Comm* ranks) {
    if (ranks != nullptr) {
        throw UserError("--generate runs in one process; start eval without mpirun or srun");
    }
    const interop::ModelSource source = interop::open_model(options.model, {options.accepted_keys});
    const auto tokenizer = eval::open_tokenizer(options.tokenizer, source);
    if (!tokenizer) {
        throw UserError(
            "--generate needs a tokenizer, and the model {} has no tokenizer.json; name one with "
            "--tokenizer PATH|bytes",
            source.path.string());
    }
    const auto prompt = eval::prompt_tokens(*tokenizer, *options.prompt);
    const int64_t room = source.spec.max_context - std::ssize(prompt);
    if (room < 1) {
        throw UserError("the prompt has {} tokens, and the model's max_position_embeddings is {}",
                        prompt.size(), source.spec.max_context);
    }
    if (options.generate.max_new_tokens > room) {
        spdlog::warn("the text ends after {} new tokens, at the model's max_position_embeddings, {}", room,
                     source.spec.max_context);
        options.generate.max_new_tokens = room;
    }
    const eval::Device device = eval::choose_device(options.device);
    const ops::OpsContext context;
    check_bytes(source, environment);
    eval::ResidentModel model(
        *source.tensors, source.spec,
        at::TensorOptions(eval::compute_type(options.dtype)).device(device.torch_device),
        std::ssize(prompt) + options.generate.max_new_tokens);
    const double started = seconds_now();
    const int64_t count =
        eval::generate(model, *tokenizer, prompt, options.generate, [](const std::string& text) {
            throw_if_stop_requested();
            if (!text.empty()) print_text(text, stdout);
        });
    print_text("\n", stdout);
    spdlog::info("{} tokens in {:.1f} s", count, seconds_now() - started);
}

ExitCode run(int argc, char** argv, const Environment& environment, const mpi::Comm* ranks) {
    if (ranks == nullptr) start_log(environment.log_level, 0, 1);
    catch_stop_requests(StopSignals::Terminal);
    CLI::App app{kAbout, "eval"};
    Options options;
    add_options(app, options);
    add_degrees(app, options.degrees);
    add_generate_options(app, options);
    if (!parse_options(app, argc, argv, ranks == nullptr || ranks->rank() == 0)) return ExitCode::Done;
    if (options.num_threads > 0) ops::set_num_threads(options.num_threads);
    if (options.prompt) {
        generate(options, environment, ranks);
    } else {
        for (const char* needed : {"--tasks", "--output"}) {
            if (app.count(needed) == 0) throw UserError("{} is required (or --generate)", needed);
        }
        evaluate(options, environment, ranks);
    }
    return ExitCode::Done;
}

}  // namespace
}  // namespace argosy

/// MPI is started only if a launcher started several processes.
int main(int argc, char** argv) {
    using namespace argosy;
    const Environment environment = Environment::read();
    if (environment.start.num_ranks > 1) {
        return mpi::run_program("eval", &argc, &argv, [&](const mpi::Comm& ranks, const auto&) {
            return run(argc, argv, environment, &ranks);
        });
    }
    return run_program("eval", [&] { return run(argc, argv, environment, nullptr); });
}

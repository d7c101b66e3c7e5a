// Evaluates a checkpoint of any form over tasks: perplexities, multiple choice, last words.
#include <fmt/ranges.h>

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
#include "eval/generate.h"
#include "eval/generation_tasks.h"
#include "eval/readers.h"
#include "eval/requests.h"
#include "eval/results.h"
#include "eval/scoring_model.h"
#include "eval/task_file.h"
#include "eval/task_result.h"
#include "eval_options.h"
#include "interop/conversion.h"
#include "interop/conversion_folder.h"
#include "interop/model_source.h"
#include "model/units.h"
#include "mpi/agreement.h"
#include "mpi/comm.h"
#include "mpi/program.h"
#include "ops/ops_context.h"
#include "setup/process.h"
#include "tokenizer/tokenizer.h"

namespace argosy {
namespace {

/// Verifies all weights before the run. The run itself may read part of a stored slab, and a check covers
/// only a whole slab.
void check_bytes(const interop::ModelSource& source) {
    if (!source.checkpoint) return;  // files of Hugging Face have no checks
    const auto weights = interop::plan_conversions(source, interop::Content::ModelOnly, std::nullopt);
    interop::ByteProgress progress("checking", interop::num_source_bytes(weights));
    const interop::StreamOptions stream_options{
        .num_threads = ops::num_threads(), .progress = &progress, .stopped = stop_requested};
    interop::run_conversions(source, weights, stream_options, [](auto&&...) {});
}

/// The inputs of an evaluation. Opening them first reports user mistakes before a GPU is used.
struct Inputs {
    interop::ModelSource source;
    std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null if there is none
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

bool generates(const eval::Task& task) { return task.type() == eval::OutputType::Generation; }

void refuse_stdin(std::span<const eval::TaskName> tasks) {
    for (const eval::TaskName& task : tasks) {
        if (!is_standard_stream(task.path)) continue;
        throw UserError("--tasks -: several ranks cannot read stdin; write the records to a file");
    }
}

/// Logs on one rank what the user of a tokenizer should know.
void warn_of(const tokenizer::Tokenizer& tokenizer, const mpi::Comm* ranks) {
    if (ranks != nullptr && ranks->rank() != 0) return;
    for (const std::string& warning : tokenizer.info().warnings) spdlog::warn("{}", warning);
}

/// Ranks check the model when they load it together.
interop::ModelSource open_source(const Options& options, const mpi::Comm* ranks) {
    return interop::open_model(options.model, {.accepted = {options.accepted_keys},
                                               .assets = options.assets,
                                               .checked = ranks != nullptr,
                                               .quiet = ranks != nullptr && ranks->rank() != 0});
}

Inputs open_inputs(Options& options, const mpi::Comm* ranks) {
    if (options.task.num_fewshot > 0 && options.task.fewshot_file.empty()) {
        throw UserError("--num-fewshot {} needs --fewshot-file", options.task.num_fewshot);
    }
    Inputs inputs{open_source(options, ranks), nullptr, {}};
    options.task.vocab_size = inputs.source.spec.vocab_size;
    const std::vector<eval::TaskName> names = eval::task_names(options.tasks);
    if (ranks != nullptr) refuse_stdin(names);
    check_output(options, names, inputs.source);
    if (options.max_new_tokens) options.task.max_new_tokens = *options.max_new_tokens;
    std::vector<eval::Task> tasks;
    for (const eval::TaskName& name : names) tasks.push_back(eval::read_task(name, options.task));
    if (options.max_new_tokens && std::ranges::none_of(tasks, generates)) {
        throw UserError("--max-new-tokens {}: no task generates texts", *options.max_new_tokens);
    }
    const auto has_texts = [](const eval::Task& task) { return eval::has_texts(task.type()); };
    if (!options.tokenizer.empty() || std::ranges::any_of(tasks, has_texts))
        inputs.tokenizer = eval::open_tokenizer(options.tokenizer, inputs.source);
    if (inputs.tokenizer) warn_of(*inputs.tokenizer, ranks);
    for (eval::Task& task : tasks) {
        inputs.work.push_back(
            eval::make_work(std::move(task), inputs.tokenizer.get(), options.max_length, inputs.source));
        if (ranks != nullptr && ranks->rank() != 0) continue;
        for (const std::string& warning : inputs.work.back().warnings) spdlog::warn("{}", warning);
    }
    return inputs;
}

eval::TaskResult run_task(const Inputs& inputs, eval::ScoringModel& model, eval::Work work,
                          bool shows_progress) {
    const double started = seconds_now();
    std::optional<Progress> progress;
    if (shows_progress) progress.emplace("evaluating " + work.task.file.name);
    const auto show = [&](double share) {
        if (progress && progress->due()) progress->show(share);
    };
    const auto score = [&](auto records, const auto& windows) { return model.score(records, windows, show); };
    const int64_t max_tokens = eval::longest_sequence(work);
    const auto generate = [&](auto contexts, const auto& options) {
        return model.generate(*inputs.tokenizer, contexts, options, max_tokens, show);
    };
    eval::TaskResult result = generates(work.task)
                                  ? eval::evaluate_generation(generate, std::move(work.task), work.requests,
                                                              eval::end_tokens(inputs.source))
                                  : eval::evaluate(score, std::move(work.task), work.requests);
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
std::unique_ptr<eval::ScoringModel> make_model(const Options& options, const interop::ModelSource& source,
                                               std::span<const eval::Work> work, const mpi::Comm* ranks,
                                               const Environment& environment) {
    eval::ScoringOptions of_model{.dtype = options.dtype,
                                  .device = options.device,
                                  .score = options.score,
                                  .degrees = options.degrees,
                                  .accepted_keys = options.accepted_keys};
    for (const eval::Work& each : work) {
        of_model.longest_window = std::max(of_model.longest_window, eval::longest(each.requests.windows));
    }
    std::unique_ptr<eval::ScoringModel> model;
    if (ranks != nullptr) {
        model = eval::mesh_model(source, of_model, work, *ranks, environment);
    } else {
        eval::mesh_request(options.degrees, /*num_ranks=*/1);  // throws if a degree is not 1
        check_bytes(source);
        model = eval::layerwise_model(source, of_model);
    }
    spdlog::info("{} ({}): {:.3g} parameters, computed in {} on {}", source.path.string(), name(source.form),
                 static_cast<double>(model::num_parameters(source.spec)), options.dtype, model->place());
    return model;
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
    Inputs inputs = open_inputs(options, ranks);
    const bool writes = ranks == nullptr || ranks->rank() == 0;
    std::optional<Outputs> outputs;
    try {
        if (writes) outputs.emplace(options, inputs.work);
    } catch (const Error& error) {  // of rank 0 alone
        throw Error(error.code(), Reach::OneRank, error.what());
    }
    if (inputs.tokenizer) evaluation.tokenizer = inputs.tokenizer->info().name;
    evaluation.num_parameters = model::num_parameters(inputs.source.spec);
    const auto model = make_model(options, inputs.source, inputs.work, ranks, environment);
    const auto run_tasks = [&] {
        for (eval::Work& work : inputs.work) {
            evaluation.tasks.push_back(run_task(inputs, *model, std::move(work), writes));
        }
    };
    ranks ? mpi::print_errors_first("eval", *ranks, run_tasks) : run_tasks();
    evaluation.device = model->device_name();
    if (!writes) return;
    evaluation.seconds = seconds_now() - started;
    outputs->write(evaluation);
    print_text(eval::results_table(evaluation), is_standard_stream(options.output) ? stderr : stdout);
}

/// One text is the work of one process, or of ranks that share the model.
void check_ranks_of_one_text(const Options& options, const mpi::Comm* ranks) {
    if (ranks == nullptr) return;
    const int replicas = eval::mesh_request(options.degrees, ranks->size()).replicate;
    if (replicas == 1) return;
    throw UserError(
        "--generate continues one text, but {} of the {} ranks would be copies without work; set "
        "--tensor-parallel-degree {} or another degree, or start eval without mpirun or srun",
        ranks->size() - ranks->size() / replicas, ranks->size(), options.degrees.tensor * replicas);
}

/// A prompt as the work of ranks, which must have the same.
eval::Work work_of(const tokenizer::Ids& prompt, const tokenizer::Tokenizer& tokenizer,
                   const eval::GenerateOptions& options) {
    eval::Work work;
    work.task.file.path = "--generate";
    work.task.documents.push_back({.record = {{"tokenizer", tokenizer.info().digest},
                                              {"ends", options.end_tokens},
                                              {"max_new_tokens", options.max_new_tokens}}});
    work.requests.records = {prompt};
    return work;
}

/// Prints the continuation of a prompt to stdout.
void generate(Options options, const Environment& environment, const mpi::Comm* ranks) {
    check_ranks_of_one_text(options, ranks);
    const interop::ModelSource source = open_source(options, ranks);
    const auto tokenizer = eval::open_tokenizer(options.tokenizer, source);
    if (!tokenizer) {
        throw UserError(
            "--generate needs a tokenizer, and the model {} has none; name one with "
            "--tokenizer PATH|bytes",
            source.path.string());
    }
    warn_of(*tokenizer, ranks);
    const auto prompt = eval::prompt_tokens(*tokenizer, *options.prompt);
    options.generate.max_new_tokens = options.max_new_tokens.value_or(options.generate.max_new_tokens);
    options.generate.end_tokens = eval::end_tokens(source);
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
    const eval::Work work = work_of(prompt, *tokenizer, options.generate);
    const auto model = make_model(options, source, {&work, 1}, ranks, environment);
    const double started = seconds_now();
    const auto run = [&] {
        return model->generate(*tokenizer, work.requests.records, options.generate,
                               std::ssize(prompt) + options.generate.max_new_tokens, [](double) {});
    };
    const auto texts = ranks ? mpi::print_errors_first("eval", *ranks, run) : run();
    if (ranks == nullptr || ranks->rank() == 0) print_text(texts[0].text + "\n", stdout);
    spdlog::info("{} tokens in {:.1f} s", texts[0].num_tokens, seconds_now() - started);
}

ExitCode run(int argc, char** argv, const Environment& environment, const mpi::Comm* ranks) {
    if (ranks == nullptr) start_log(environment.log_level, 0, 1);
    catch_stop_requests(StopSignals::Terminal);
    CLI::App app{"", "eval"};
    Options options;
    add_options(app, options);
    if (!parse_options(app, argc, argv, ranks == nullptr || ranks->rank() == 0)) return ExitCode::Done;
    if (options.num_threads > 0) ops::set_num_threads(options.num_threads);
    if (options.prompt) {
        for (const char* idle : {"--limit", "--num-fewshot", "--log-samples", "--max-length",
                                 "--batch-tokens", "--batch-size"}) {
            if (app.count(idle) > 0) throw UserError("{} has no effect with --generate; leave it out", idle);
        }
        generate(options, environment, ranks);
    } else {
        eval::task_names(options.tasks);  // says which file to bring for the name of a data set
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
    setup::separate_streams();
    const Environment environment = Environment::read();
    if (environment.start.num_ranks > 1) {
        return end_process(mpi::run_program("eval", &argc, &argv, [&](const mpi::Comm& ranks, const auto&) {
            const std::vector<std::string> words(argv + 1, argv + argc);
            mpi::require_same(ranks, {mpi::executable_fact(),
                                      {"the command line", fmt::format("{}", fmt::join(words, " "))}});
            return run(argc, argv, environment, &ranks);
        }));
    }
    return end_process(run_program("eval", [&] { return run(argc, argv, environment, nullptr); }));
}

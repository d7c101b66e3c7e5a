#include "eval_options.h"

#include "command_line.h"
#include "eval/readers.h"

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
    "For gsm8k it generates the answers, and holds all weights in memory.\n"
    "With --generate it continues a text instead; the continuation alone goes to stdout.\n"
    "\n"
    "One process reads the weights layer by layer and needs memory for one layer. Under mpirun or srun the\n"
    "ranks hold the weights: each all of them, or its share on the axes of --*-parallel-degree. The results\n"
    "are the same. Each rank takes one GPU of its node if there are any.\n";

/// The readers: those that records name by their keys, and in further lines those of public data sets.
std::string reader_names() {
    constexpr size_t kMaxColumns = 64;
    std::string own, others;
    size_t columns = 0;
    for (const eval::Reader& reader : eval::readers()) {
        const std::string name = fmt::format("{} ", reader.name);
        if (reader.keys.empty() && (columns += name.size()) > kMaxColumns) {
            others += '\n';
            columns = name.size();
        }
        (reader.keys.empty() ? others : own) += name;
    }
    return fmt::format("{}\n{}", own, others);
}

void add_task_options(CLI::App& app, Options& options) {
    app.add_option("--model", options.model,
                   "a checkpoint of any form: a run's folder (its newest whole step), a step, a\n"
                   "full file, or the folder of Hugging Face, TorchTitan, Megatron or Meta")
        ->required();
    add_accepted_keys(app, options.accepted_keys);
    add_assets(app, options.assets);
    app.add_option("--tasks", options.tasks,
                   fmt::format("[READER=]FILE, separated by commas; -: stdin. Readers:\n{}", reader_names()))
        ->delimiter(',');
    app.add_option("--output", options.output,
                   "JSON file for the results; replaces only earlier results. -: stdout, and the\ntable goes "
                   "to stderr");
    app.add_option("--tokenizer", options.tokenizer,
                   "tokenizer.json, a folder with one, or `bytes`; default: the model's own")
        ->option_text("PATH|bytes");
    app.add_option("--limit", options.task.limit, "maximum number of records of a task")
        ->check(at_least_one());
    app.add_option("--num-fewshot", options.task.num_fewshot,
                   "examples before each question, from --fewshot-file, chosen as the harness does")
        ->check(not_negative());
    app.add_option("--fewshot-file", options.task.fewshot_file,
                   "JSONL file with records like the tasks'; if it is the task's own, a record is no\n"
                   "example of itself (the harness does not leave it out for lambada)");
    app.add_flag("--log-samples", options.log_samples,
                 "also write samples_TASK.jsonl beside --output: requests and scores of records");
    app.add_option("--dtype", options.dtype,
                   "type of the computation: fp32 or bf16, for every checkpoint type. On a GPU bf16\n"
                   "is many times faster, and long windows need far less memory")
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
                   "tokens in one batch, padding included, and of the prompts of a task that are\n"
                   "read at once to generate; results do not depend on it, except for rounding")
        ->check(at_least_one())
        ->capture_default_str();
    app.add_option("--batch-size", options.score.batch.num_windows,
                   "maximum number of windows in one batch (on ranks, of sequences with several\n"
                   "windows), and of texts that it generates side by side (default: 16)")
        ->check(at_least_one());
    app.add_option("--threads", options.num_threads,
                   "compute threads; default: OMP_NUM_THREADS, else all cores")
        ->check(at_least_one());
}

void add_degrees(CLI::App& app, eval::Degrees& degrees) {
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
    app.add_option("--stop", options.generate.stop_texts,
                   "a text that ends the continuation and is left out of it; may be repeated")
        ->allow_extra_args(false)
        ->needs(app.get_option("--generate"));
    app.add_option("--max-new-tokens", options.max_new_tokens,
                   "maximum number of generated tokens; default: 128, or a task's 256")
        ->check(at_least_one());
    app.add_option("--temperature", options.generate.sampling.temperature,
                   "0: the likeliest token each time; else logits are divided by it, tokens drawn")
        ->check(not_negative())
        ->needs("--generate")
        ->capture_default_str();
    app.add_option("--top-p", options.generate.sampling.top_p,
                   "draw from the fewest tokens that together have this probability")
        ->check(CLI::Range(0.0, 1.0))
        ->needs("--generate")
        ->capture_default_str();
    app.add_option("--seed", options.generate.sampling.seed, "of the drawing")
        ->needs("--generate")
        ->capture_default_str();
}

}  // namespace

void add_options(CLI::App& app, Options& options) {
    app.description(kAbout);
    app.footer(
        "Exit codes: 0 done; 1 failed while running; 2 bad command line or input; 3 a checkpoint or task "
        "file is\ndamaged, or the weights are not finite. "
        "Unless the code is 0, --output is not written, except if only writing\nto stdout failed.\n"
        "\n"
        "A shell has a command of the name eval, so call this one by its path:\n"
        "  build/bin/eval --model run --tasks tokens.jsonl --output results.json\n"
        "  mpirun -n 8 build/bin/eval --model run --tensor-parallel-degree 4 --tasks tokens.jsonl --output "
        "results.json");
    add_task_options(app, options);
    add_degrees(app, options.degrees);
    add_generate_options(app, options);
}

}  // namespace argosy

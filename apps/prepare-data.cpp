// Makes training data: a synthetic corpus with its evaluation tasks, and token files from JSONL records.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "base/program.h"
#include "command_line.h"
#include "data/synthetic.h"
#include "data/tokenize.h"

namespace argosy {
namespace {

struct CommandLine {
    CLI::App app{"Makes training data: a synthetic corpus, and token files from JSONL records.",
                 "prepare-data"};
    data::SyntheticOptions synthetic;
    data::TokenizeOptions tokenize;
    std::string tokenizer = data::kByteTokenizer;
};

void add_synthetic(CommandLine& line) {
    CLI::App* command =
        line.app.add_subcommand("synthetic", "write a synthetic corpus that depends only on its seed");
    command->add_option("--output", line.synthetic.output, "folder for train.jsonl, valid.jsonl and tasks/")
        ->required();
    command
        ->add_option("--megabytes", line.synthetic.megabytes,
                     "size of train.jsonl in 1e6 bytes; may be fractional")
        ->capture_default_str();
    command->add_option("--seed", line.synthetic.seed, "seed of the corpus")->capture_default_str();
    command->callback([&line] {
        data::write_synthetic_corpus(line.synthetic);
        spdlog::info("wrote train.jsonl, valid.jsonl and tasks/ to {}", line.synthetic.output.string());
    });
}

void tokenize(const CommandLine& line) {
    if (line.tokenizer != data::kByteTokenizer) {
        throw UserError("--tokenizer is '{}'; the only tokenizer so far is '{}'", line.tokenizer,
                        data::kByteTokenizer);
    }
    const data::TokenizeResult result = data::tokenize(line.tokenize);
    const nlohmann::ordered_json report = {
        {"tokens", result.num_tokens},
        {"documents", result.num_documents},
        {"vocab_size", result.vocab_size},
        {"unigram_entropy", result.unigram_entropy},
        {"bigram_entropy", result.bigram_entropy},
        {"bigram_tokens", result.bigram_tokens},
    };
    print_result(report.dump() + "\n");
}

void add_tokenize(CommandLine& line) {
    CLI::App* command = line.app.add_subcommand(
        "tokenize",
        "make a token file from JSONL records; prints its counts, and its entropies in nats\nper token");
    command
        ->add_option("--input", line.tokenize.inputs,
                     "JSONL files with {\"text\"} or with {\"tokens\"} records")
        ->required();
    command->add_option("--output", line.tokenize.output, "the token file to write (HDF5)")->required();
    command->add_option("--tokenizer", line.tokenizer, "tokenizer of {\"text\"} records: bytes")
        ->capture_default_str();
    command->add_option("--vocab-size", line.tokenize.vocab_size,
                        "vocabulary of {\"tokens\"} records; default: their largest token plus one");
    command->callback([&line] { tokenize(line); });
}

/// Parses the command line; the subcommand's callback does the work.
ExitCode run(int argc, char** argv) {
    start_log(Environment::read().log_level, 0, 1);
    catch_stop_requests(StopSignals::Terminal);
    CommandLine line;
    add_synthetic(line);
    add_tokenize(line);
    if (!parse_options(line.app, argc, argv)) return ExitCode::Done;
    if (line.app.get_subcommands().empty()) throw UserError("a subcommand is missing: synthetic or tokenize");
    return ExitCode::Done;
}

}  // namespace
}  // namespace argosy

int main(int argc, char** argv) {
    return argosy::run_program("prepare-data", [&] { return argosy::run(argc, argv); });
}

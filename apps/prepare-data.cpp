// Makes training data: a synthetic corpus with its evaluation tasks, tokenizers, and token files from JSONL
// records.
#include <CLI/CLI.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "base/output.h"
#include "base/program.h"
#include "base/progress.h"
#include "command_line.h"
#include "data/records.h"
#include "data/synthetic.h"
#include "data/token_file.h"
#include "data/tokenize.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/tokenizer.h"

namespace argosy {
namespace {

struct CommandLine {
    CLI::App app{"Makes training data: a synthetic corpus, tokenizers, and token files from JSONL records.",
                 "prepare-data"};
    data::SyntheticOptions synthetic;
    data::TokenizeOptions tokenize;
    std::string tokenizer = tokenizer::kBytes, end_of_text;
    std::vector<std::filesystem::path> training_inputs;
    std::filesystem::path trained;
    int64_t vocab_size = 0;
    tokenizer::TrainedPattern pattern = tokenizer::TrainedPattern::Llama3;
    std::vector<std::filesystem::path> verified;
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
    const auto tokenizer = tokenizer::open_tokenizer(line.tokenizer, line.end_of_text);
    if (!tokenizer->info().end_of_text) {
        throw UserError(
            "{} names no token that ends a text, and neither does a tokenizer_config.json beside it; "
            "add --end-of-text TOKEN",
            line.tokenizer);
    }
    const data::TokenizeResult result = data::tokenize(line.tokenize, *tokenizer);
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
                     "JSONL files with {\"text\"} or with {\"tokens\"} records; -: stdin")
        ->required();
    command->add_option("--output", line.tokenize.output, "the token file to write (HDF5)")->required();
    command
        ->add_option("--tokenizer", line.tokenizer,
                     "tokenizer of {\"text\"} records: bytes, tokenizer.json (byte-level BPE), Llama 3's\n"
                     "tokenizer.model, a SentencePiece model, or a folder with one of them")
        ->capture_default_str();
    command->add_option("--end-of-text", line.end_of_text,
                        "the token that ends a text; default: eos_token of tokenizer_config.json beside\n"
                        "the tokenizer's file");
    command->add_option("--vocab-size", line.tokenize.vocab_size,
                        "vocabulary of {\"tokens\"} records; default: their largest token plus one");
    command->callback([&line] { tokenize(line); });
}

void train_tokenizer(const CommandLine& line) {
    if (line.trained.extension() != ".json") {
        throw UserError(
            "--output is {}, but programs know a tokenizer by a name that ends in .json, such as "
            "tokenizer.json",
            line.trained.string());
    }
    // Opened before the work, so that a bad path is reported at once.
    ResultFile tokenizer_file(line.trained, begins_with(tokenizer::kTrainedMark));
    ResultFile config_file(folder_of(line.trained) / "tokenizer_config.json",
                           begins_with(tokenizer::kTrainedConfigMark));
    tokenizer::BpeTrainer trainer(line.pattern, line.vocab_size);
    for (const auto& input : line.training_inputs) {
        data::RecordReader reader(input, data::kMaxVocabSize);
        data::Record record;
        while (reader.next(record)) {
            if (record.kind != data::RecordKind::Text)
                throw UserError("{}: a tokenizer is trained on {{\"text\"}} records alone", reader.place());
            trainer.add(record.text);
        }
    }
    const tokenizer::TrainedTokenizer trained = trainer.train();
    if (trained.vocab_size < line.vocab_size) {
        spdlog::warn("the vocabulary has {} tokens, not {}: no further pair occurs twice in the texts",
                     trained.vocab_size, line.vocab_size);
    }
    tokenizer_file.write(trained.tokenizer_json);
    config_file.write(trained.tokenizer_config_json);
    spdlog::info("wrote {} with {} tokens, and tokenizer_config.json beside it", line.trained.string(),
                 trained.vocab_size);
}

void add_train_tokenizer(CommandLine& line) {
    CLI::App* command = line.app.add_subcommand(
        "train-tokenizer", "train a byte-level BPE on {\"text\"} records, as Hugging Face's tokenizer.json");
    command->add_option("--input", line.training_inputs, "JSONL files with {\"text\"} records; -: stdin")
        ->required();
    command
        ->add_option("--vocab-size", line.vocab_size,
                     "number of tokens, of which 256 are bytes and one, <|endoftext|>, ends texts")
        ->required();
    command
        ->add_option("--output", line.trained,
                     "the file to write (tokenizer.json); tokenizer_config.json beside it names the\n"
                     "end of text")
        ->required();
    const std::map<std::string, tokenizer::TrainedPattern> patterns = {
        {"gpt2", tokenizer::TrainedPattern::Gpt2}, {"llama3", tokenizer::TrainedPattern::Llama3}};
    command->add_option("--pattern", line.pattern, "how texts are cut into pieces: gpt2 or llama3 (default)")
        ->transform(CLI::CheckedTransformer(patterns));
    command->callback([&line] { train_tokenizer(line); });
}

/// Reads a token file wholly, and prints what it holds, or logs every fault.
bool verify(const std::filesystem::path& path, const Environment& environment) {
    const data::TokenFile file(path, data::TokenChecks::None);
    Progress progress("verifying " + path.string(), environment);
    const auto faults = file.find_faults([&](double share) {
        throw_if_stop_requested();
        if (progress.due()) progress.show(share);
    });
    for (const std::string& fault : faults) spdlog::error("{}: {}", path.string(), fault);
    if (!file.num_documents()) spdlog::warn("{} has format version 1, without checksums", path.string());
    const nlohmann::ordered_json report = {
        {"file", path.string()},
        {"tokens", file.size()},
        {"documents", file.num_documents() ? nlohmann::ordered_json(*file.num_documents()) : nullptr},
        {"vocab_size", file.vocab_size()},
        {"tokenizer", file.info().tokenizer},
        {"okay", faults.empty()},
    };
    print_result(report.dump() + "\n");
    return faults.empty();
}

ExitCode verify_all(const CommandLine& line, const Environment& environment) {
    size_t num_damaged = 0;
    for (const auto& path : line.verified) num_damaged += verify(path, environment) ? 0 : 1;
    if (num_damaged == 0) return ExitCode::Done;
    throw DamageError("{} of {} token files are damaged; copy or make them again", num_damaged,
                      line.verified.size());
}

/// Parses the command line; the subcommand's callback does the work.
ExitCode run(int argc, char** argv) {
    const Environment environment = Environment::read();
    start_log(environment.log_level, 0, 1);
    catch_stop_requests(StopSignals::Terminal);
    CommandLine line;
    line.app.footer(
        "Exit codes: 0 done; 1 failed while running; 2 bad command line or input; 3 --verify found damage.");
    line.app.add_option("--verify", line.verified,
                        "read these token files wholly and verify their checksums and their tokens;\n"
                        "prints a line of JSON for each");
    add_synthetic(line);
    add_tokenize(line);
    add_train_tokenizer(line);
    if (!parse_options(line.app, argc, argv)) return ExitCode::Done;
    if (!line.verified.empty()) return verify_all(line, environment);
    if (line.app.get_subcommands().empty()) {
        throw UserError(
            "there is nothing to do: name a subcommand (synthetic, tokenize or train-tokenizer), or --verify "
            "F.h5");
    }
    return ExitCode::Done;
}

}  // namespace
}  // namespace argosy

int main(int argc, char** argv) {
    return argosy::run_program("prepare-data", [&] { return argosy::run(argc, argv); });
}

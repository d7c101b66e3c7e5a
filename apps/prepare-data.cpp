// Makes training data: a synthetic corpus with its evaluation tasks, tokenizers, and token files.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "base/output.h"
#include "base/program.h"
#include "base/progress.h"
#include "base/strict_json.h"
#include "command_line.h"
#include "data/records.h"
#include "data/synthetic.h"
#include "data/token_file.h"
#include "data/tokenize.h"
#include "mpi/comm.h"
#include "mpi/program.h"
#include "parquet/documents.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/tokenizer.h"

namespace argosy {
namespace {

struct CommandLine {
    CLI::App app{"Makes training data: a synthetic corpus, tokenizers, and token files.", "prepare-data"};
    data::SyntheticOptions synthetic;
    data::TokenizeOptions tokenize;
    std::string tokenizer = tokenizer::kBytes, end_of_text;
    std::vector<std::filesystem::path> training_inputs;
    data::InputOptions training_input;
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
}

void write_corpus(const CommandLine& line) {
    data::write_synthetic_corpus(line.synthetic);
    spdlog::info("wrote train.jsonl, valid.jsonl and tasks/ to {}", line.synthetic.output.string());
}

/// The other processes that make the same token file, if a launcher started several.
class Team {
  public:
    explicit Team(const mpi::Comm* ranks = nullptr) : ranks_(ranks) {}
    int rank() const { return ranks_ ? ranks_->rank() : 0; }
    int size() const { return ranks_ ? ranks_->size() : 1; }

    /// COLLECTIVE: waits for all processes, which may take hours, without using a core.
    void barrier() const {
        if (!ranks_) return;
        mpi::Request request = ranks_->barrier();
        while (!mpi::test_all({&request, 1})) {
            throw_if_stop_requested();
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
    }

  private:
    const mpi::Comm* ranks_;
};

std::unique_ptr<tokenizer::Tokenizer> open_tokenizer(const CommandLine& line) {
    auto tokenizer = tokenizer::open_tokenizer(line.tokenizer, line.end_of_text);
    if (tokenizer->info().end_of_text) return tokenizer;
    throw UserError(
        "{} names no token that ends a text, and neither does a tokenizer_config.json beside it; "
        "add --end-of-text TOKEN",
        line.tokenizer);
}

void print_report(const data::TokenizeResult& result) {
    if (result.num_skipped > 0) {
        spdlog::warn("left out, since they could not be read (--on-error skip): {} of the records", result.num_skipped);
    }
    if (result.num_repaired > 0) {
        spdlog::warn("{} of {} texts have malformed UTF-8, which is read as U+FFFD", result.num_repaired,
                     result.num_documents);
    }
    const nlohmann::ordered_json report = {
        {"tokens", result.num_tokens},       {"counted_tokens", result.counted_tokens},
        {"documents", result.num_documents}, {"skipped", result.num_skipped},
        {"repaired", result.num_repaired},   {"vocab_size", result.vocab_size},
    };
    print_text(report.dump() + "\n", stdout);
}

/// Makes the token file together with the other processes.
void tokenize(CommandLine& line, const Team& team) {
    const auto tokenizer = open_tokenizer(line);
    std::optional<Progress> progress;
    if (team.rank() == 0) {
        for (const std::string& warning : tokenizer->info().warnings) spdlog::warn("{}", warning);
        progress.emplace("tokenizing");
    }
    line.tokenize.progress = [&](double share, int64_t num_bytes, const char* what) {
        throw_if_stop_requested();
        if (!progress || !progress->due()) return;
        const double rate = static_cast<double>(num_bytes) / 1e6 / std::max(progress->seconds(), 1e-3);
        progress->show(share, num_bytes > 0 ? fmt::format("{}: {:.1f} MB/s", what, rate) : what);
    };
    const auto chat_template = tokenizer::open_chat_template(line.tokenizer, *tokenizer);
    line.tokenize.chat_template = chat_template.get();
    line.tokenize.inputs = data::expand_inputs(line.tokenize.inputs);
    data::TokenizeJob job(line.tokenize, *tokenizer);
    if (team.rank() == 0) job.begin();
    team.barrier();
    job.make_parts(team.rank(), team.size());
    team.barrier();
    if (team.rank() == 0) print_report(job.finish());
    team.barrier();  // the others must not wait in MPI_Finalize, which has a timeout
}

/// Adds an option whose value is one of `choices`.
template <class Value>
void add_choice(CLI::App* command, const std::string& name, Value& value,
                const std::map<std::string, Value>& choices, const std::string& help) {
    std::string names;
    for (const auto& [word, choice] : choices) {
        names += (names.empty() ? "" : "|") + word;
        if (choice == value) names += " (default)";
    }
    const auto number_of = [choices](std::string& word) {
        const auto found = choices.find(word);
        if (found == choices.end()) return fmt::format("there is no choice '{}'; see --help", word);
        word = std::to_string(static_cast<int>(found->second));
        return std::string();
    };
    command->add_option(name, value, help)->transform(CLI::Validator(number_of, ""))->option_text(names);
}

/// The options that say how inputs are read.
void add_input_options(CLI::App* command, std::vector<std::filesystem::path>& inputs,
                       data::InputOptions& options, const std::string& help) {
    using enum data::InputFormat;
    using data::TextDocument;
    command->add_option("--input", inputs, help)->required();
    add_choice<data::InputFormat>(command, "--format", options.format,
                                  {{"auto", Auto}, {"jsonl", Jsonl}, {"parquet", Parquet}, {"text", Text}},
                                  "format of the inputs; auto: text if the name ends in .txt, parquet if it "
                                  "ends in\n.parquet, else jsonl");
    add_choice<TextDocument>(
        command, "--document", options.text_document,
        {{"file", TextDocument::File}, {"line", TextDocument::Line}},
        "a document of a text file: the whole file with every byte of it, or each line,\n"
        "which ends with \\n or \\r\\n");
    command->add_option("--column", options.column,
                        "column of Parquet files, or key of JSONL records, that holds the texts; all\n"
                        "other keys are then ignored. Default: text, beside records of other kinds");
    options.open_parquet = parquet::open_documents;
}

void add_work_options(CLI::App* command, data::TokenizeOptions& options) {
    using data::OnError;
    add_choice<OnError>(command, "--on-error", options.on_error,
                        {{"fail", OnError::Fail}, {"skip", OnError::Skip}},
                        "what a record that cannot be read does: fail, or skip, which counts and shows it");
    command
        ->add_option("--threads", options.num_threads,
                     "threads that tokenize; default: all cores of this process")
        ->check(CLI::Range(1, 1024).name("INT in 1 .. 1024"));
    command
        ->add_option_function<int64_t>(
            "--piece-megabytes",
            [&options](int64_t megabytes) { options.piece_bytes = megabytes * 1'000'000; },
            "inputs above this size, in 1e6 bytes, are tokenized in pieces: an interrupted\nrun goes on "
            "where it "
            "was, and processes of one mpirun share the pieces. The\nfolder OUTPUT.parts keeps them until "
            "the "
            "end. Default: 1074")
        ->check(CLI::Range(1, 1'000'000'000).name("INT in 1 .. 1000000000"));
}

void add_tokenize(CommandLine& line) {
    CLI::App* command =
        line.app.add_subcommand("tokenize", "make a token file from JSONL or text; prints its counts");
    line.tokenize.num_threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    add_input_options(
        command, line.tokenize.inputs, line.tokenize.input,
        "JSONL files with records of one kind: {\"text\"}, {\"prompt\", \"completion\"} (the tokens\n"
        "of prompts do not count in the loss), {\"messages\": [{\"role\", \"content\"}, ...]} (the\n"
        "turns of assistants count; the tokenizer's chat template makes the tokens), {\"tokens\"},\n"
        "or {\"tokens\", \"loss_mask\"} (1 for tokens that count, else 0); or text files; or Parquet\n"
        "files. Files may be compressed with gzip, Zstandard, bzip2 or xz. A folder: its files;\n"
        "a quoted pattern: its matches; -: stdin");
    add_work_options(command, line.tokenize);
    command->add_option("--output", line.tokenize.output, "the token file to write (HDF5)")->required();
    command
        ->add_option(
            "--tokenizer", line.tokenizer,
            "tokenizer of texts: bytes, tokenizer.json (byte-level BPE), a known tiktoken file,\n"
            "tekken.json, a SentencePiece model, or a folder with one of them; of {\"messages\"} with a\n"
            "chat template beside it: chat_template.jinja, or in tokenizer_config.json")
        ->capture_default_str();
    command->add_option("--end-of-text", line.end_of_text,
                        "the token that ends a text; default: eos_token of tokenizer_config.json beside\n"
                        "the tokenizer's file");
    command->add_option("--vocab-size", line.tokenize.vocab_size,
                        "vocabulary of {\"tokens\"} records; default: their largest token plus one");
}

/// Trains on the texts of an input. Returns their number.
int64_t add_texts(const std::filesystem::path& input, const data::InputOptions& options,
                  tokenizer::BpeTrainer& trainer) {
    int64_t num_texts = 0;
    const auto reader = data::open_documents({.path = input}, options);
    data::DocumentBatch batch;
    data::Record record;
    while (reader->next(batch)) {
        if (!batch.unreadable.empty()) throw UserError("{}", batch.unreadable.front());
        for (size_t i = 0; i < batch.size(); ++i, ++num_texts) {
            if (batch.kind == data::DocumentBatch::Kind::Text) {
                trainer.add(batch.document(i));
                continue;
            }
            const std::string place = batch.place(i).text();
            data::parse_record(batch.document(i), place, data::kMaxVocabSize, record, options.column);
            if (record.kind != data::RecordKind::Text)
                throw UserError("{}: a tokenizer is trained on {{\"text\"}} records alone", place);
            trainer.add(record.text);
        }
    }
    return num_texts;
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
    int64_t num_records = 0;
    for (const auto& input : data::expand_inputs(line.training_inputs))
        num_records += add_texts(input, line.training_input, trainer);
    if (num_records == 0) throw UserError("the inputs hold no records, so there is nothing to train on");
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
    add_input_options(command, line.training_inputs, line.training_input,
                      "JSONL files with {\"text\"} records, text files or Parquet files, which may be\n"
                      "compressed; a folder: its files; a quoted pattern: its matches; -: stdin");
    command
        ->add_option("--vocab-size", line.vocab_size,
                     "number of tokens, of which 256 are bytes and one, <|endoftext|>, ends texts")
        ->required();
    command
        ->add_option("--output", line.trained,
                     "the file to write (tokenizer.json); tokenizer_config.json beside it names the\n"
                     "end of text")
        ->required();
    using tokenizer::TrainedPattern;
    add_choice<TrainedPattern>(command, "--pattern", line.pattern,
                               {{"gpt2", TrainedPattern::Gpt2}, {"llama3", TrainedPattern::Llama3}},
                               "how texts are cut into pieces");
}

/// Reads a token file wholly, and prints what it holds, or logs every fault.
bool verify(const std::filesystem::path& path) {
    const data::TokenFile file(path, data::TokenChecks::None);
    Progress progress("verifying " + path.string());
    const auto faults = file.find_faults([&](double share) {
        throw_if_stop_requested();
        if (progress.due()) progress.show(share);
    });
    for (const std::string& fault : faults) spdlog::error("{}: {}", path.string(), fault);
    const nlohmann::ordered_json report = {
        {"file", path.string()},
        {"tokens", file.size()},
        {"counted_tokens", file.stored().counted_tokens},
        {"documents", file.num_documents()},
        {"vocab_size", file.vocab_size()},
        {"tokenizer", file.info().tokenizer},
        {"okay", faults.empty()},
    };
    print_text(json_text(report) + "\n", stdout);
    return faults.empty();
}

/// Verifies every file, also after one that cannot be opened.
ExitCode verify_all(const CommandLine& line) {
    size_t num_damaged = 0, num_unread = 0;
    for (const auto& path : line.verified) {
        try {
            num_damaged += verify(path) ? 0 : 1;
        } catch (const UserError& error) {  // of opening the file
            ++(error.code() == ExitCode::CheckFailed ? num_damaged : num_unread);
            spdlog::error("{}", error.what());
            const nlohmann::ordered_json report = {
                {"file", path.string()}, {"error", error.what()}, {"okay", false}};
            print_text(json_text(report) + "\n", stdout);
        }
    }
    const std::string unread =
        fmt::format("{} of {} token files cannot be read", num_unread, line.verified.size());
    if (num_damaged > 0) {
        throw DamageError("{} of {} token files are damaged; copy or make them again{}", num_damaged,
                          line.verified.size(), num_unread > 0 ? ". " + unread : "");
    }
    if (num_unread > 0) throw UserError("{}", unread);
    return ExitCode::Done;
}

ExitCode run(int argc, char** argv, const std::string& log_level, const Team& team) {
    start_log(log_level, team.rank(), team.size());
    catch_stop_requests(StopSignals::Terminal);
    CommandLine line;
    line.app.footer(
        "Exit codes: 0 done; 1 failed while running; 2 bad command line or input; 3 an input is damaged.");
    line.app.add_option("--verify", line.verified,
                        "read these token files wholly and verify their checksums and their tokens;\n"
                        "prints a line of JSON for each, and goes on after one that is damaged or missing");
    add_synthetic(line);
    add_tokenize(line);
    add_train_tokenizer(line);
    if (!parse_options(line.app, argc, argv, team.rank() == 0)) return ExitCode::Done;
    if (team.size() > 1 && (!line.app.got_subcommand("tokenize") || !line.verified.empty()))
        throw UserError("only the subcommand tokenize, without --verify, can use several processes");
    if (line.app.got_subcommand("tokenize")) tokenize(line, team);
    if (line.app.got_subcommand("synthetic")) write_corpus(line);
    if (line.app.got_subcommand("train-tokenizer")) train_tokenizer(line);
    if (!line.verified.empty()) return verify_all(line);
    if (line.app.get_subcommands().empty()) {
        throw UserError(
            "there is nothing to do: name a subcommand (synthetic, tokenize or train-tokenizer), or --verify "
            "F.h5");
    }
    return ExitCode::Done;
}

}  // namespace
}  // namespace argosy

/// MPI is started only if a launcher started several processes: alone, the program needs no MPI that works.
int main(int argc, char** argv) {
    using namespace argosy;
    const Environment environment = Environment::read();
    if (environment.start.num_ranks > 1) {
        return mpi::run_program("prepare-data", &argc, &argv, [&](const mpi::Comm& ranks, const auto&) {
            return run(argc, argv, environment.log_level, Team(&ranks));
        });
    }
    return run_program("prepare-data", [&] { return run(argc, argv, environment.log_level, Team()); });
}

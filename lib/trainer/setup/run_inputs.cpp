#include "setup/run_inputs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/program.h"
#include "base/raw_file.h"
#include "base/time_limit.h"
#include "comm/values.h"
#include "config/schema.h"
#include "setup/options.h"
#include "tokenizer/tokenizer.h"

namespace argosy::setup {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLargerVocabulary =
    "choose a model that fits it, or give the model a larger one: a config.json with that vocab_size in "
    "model.hf_assets_path (configs/README.md)";

std::shared_ptr<const data::TokenSource> open_source(const std::string& path,
                                                     const data::SourceOptions& options,
                                                     const model::ModelSpec& spec) {
    auto source = std::make_shared<const data::TokenSource>(path, options);
    if (source->vocab_size() <= spec.vocab_size) return source;
    throw UserError("{} has a vocabulary of {} tokens, but the model's has {}; {}", path,
                    source->vocab_size(), spec.vocab_size, kLargerVocabulary);
}

void check_vocabulary(const fs::path& folder, const model::ModelSpec& spec) {
    const tokenizer::TokenizerInfo info = tokenizer::open_tokenizer(folder.string())->info();
    if (info.vocab_size <= spec.vocab_size) return;
    throw UserError("{} has a vocabulary of {} tokens, but the model's has {}; {}",
                    (folder / info.name).string(), info.vocab_size, spec.vocab_size, kLargerVocabulary);
}

[[noreturn]] void refuse_tokenizer(const data::StoredTokens& file, const fs::path& path,
                                   const std::string& digest) {
    const std::string& other = file.info.tokenizer_digest;
    throw UserError(
        "{} was made with another tokenizer ({}) than the model's {} ({}); make it again with that one, or, "
        "if their tokens are the same, move the model's {} away",
        file.path.string(), other.empty() ? file.info.tokenizer : "XXH3-128 " + other, path.string(), digest,
        path.filename().string());
}

/// Compares the tokenizer in model.hf_assets_path with those that the token files say. If none says one, the
/// tokenizer itself must fit the model. A folder may have two forms of its tokenizer, such as tokenizer.json
/// and tokenizer.model: token files of either fit.
void check_tokenizer(const config::Model& model, const std::vector<data::WeightedSource>& sources,
                     const model::ModelSpec& spec) {
    const std::vector<fs::path> forms = tokenizer::tokenizer_files_in(model.hf_assets_path);
    if (forms.empty()) return;
    std::vector<std::string> digests;
    for (const fs::path& form : forms) digests.push_back(data::tokenizer_file_digest(form));
    bool is_known = model::has_hugging_face_config(model.hf_assets_path);
    for (const data::WeightedSource& source : sources) {
        for (const data::StoredTokens& file : source.source->files()) {
            const bool says_none =
                file.info.tokenizer_digest.empty() && file.info.tokenizer != tokenizer::kBytes;
            if (says_none) continue;
            if (std::ranges::find(digests, file.info.tokenizer_digest) == digests.end())
                refuse_tokenizer(file, forms.front(), digests.front());
            is_known = true;
        }
    }
    if (!is_known) check_vocabulary(model.hf_assets_path, spec);
}

/// The sources that the configuration names for training or validation.
struct NamedSources {
    const char* key;  // the option that names them
    std::vector<config::MixtureSource> paths;
    data::SourceOptions options;
};

NamedSources named_sources(const config::JobConfig& config, const char* key,
                           const std::vector<config::MixtureSource>& paths, const model::ModelSpec& spec) {
    constexpr size_t kMaxOpenFiles = 128;  // of all sources; a process may often have 1024 descriptors
    return {key,
            paths,
            {.checks =
                 config.training.verify_dataset ? data::TokenChecks::WhenFirstRead : data::TokenChecks::None,
             .vocab_size = spec.vocab_size,
             .max_open_files = std::max<size_t>(1, kMaxOpenFiles / std::max<size_t>(1, paths.size()))}};
}

NamedSources training_sources(const config::JobConfig& config, const model::ModelSpec& spec) {
    const std::string& path = config.training.dataset_path;
    if (path.empty()) return named_sources(config, "data.mixture", config.data.mixture, spec);
    return named_sources(config, "training.dataset_path", {{path}}, spec);
}

NamedSources validation_sources(const config::JobConfig& config, const model::ModelSpec& spec) {
    return named_sources(config, "validation.dataset_path", {{config.validation.dataset_path}}, spec);
}

using Sources = std::vector<data::WeightedSource>;

/// Lists the files and reads what they say of themselves.
Sources find_sources(const config::JobConfig& config, const NamedSources& named,
                     const model::ModelSpec& spec) {
    if (named.paths.empty()) {
        throw UserError(
            "neither training.dataset_path nor data.mixture is set; make a token file with prepare-data "
            "tokenize");
    }
    const FileWait wait(fmt::format("opening the files of {}", named.key));
    Sources sources;
    for (const auto& [path, weight] : named.paths) {
        std::error_code ignored;
        const bool is_pattern = path.find_first_of("*?[") != std::string::npos;
        if (!is_pattern && fs::status(path, ignored).type() == fs::file_type::not_found)
            throw UserError("{}: there is no file {}; make it with prepare-data tokenize", named.key, path);
        sources.push_back({open_source(path, named.options, spec), weight});
    }
    check_tokenizer(config.model, sources, spec);
    return sources;
}

/// COLLECTIVE over `control`: find_sources(). Thousands of ranks that each opened thousands of files would
/// overload the file system, so rank 0 tells the others what it has found. A rank whose configuration names
/// other paths than rank 0's finds its own. An error of rank 0 is the error of all ranks with its paths.
Sources same_sources(comm::Communicator& control, const config::JobConfig& config, const NamedSources& named,
                     const model::ModelSpec& spec) {
    using nlohmann::json;
    // 1. rank 0 says: its paths, the files of each, and in their place its exit code and error
    json paths = json::array(), files = json::array();
    for (const auto& [path, weight] : named.paths) paths.push_back(path);
    Sources sources;
    std::exception_ptr failure;
    auto code = ExitCode::Done;
    std::string said;
    if (control.rank() == 0) {
        try {
            sources = find_sources(config, named, spec);
            for (const auto& [source, weight] : sources) files.push_back(data::to_bytes(source->files()));
        } catch (const std::exception& error) {
            failure = std::current_exception();
            code = as_error(error).code();
            files = error.what();
        }
        json::to_msgpack(json::array({paths, files}), said);
    }
    code = comm::broadcast(control, code);
    const json heard = json::from_msgpack(comm::broadcast_text(control, said));
    // 2. the others do as it did
    if (failure) std::rethrow_exception(failure);
    if (control.rank() == 0) return sources;
    if (heard[0] != paths) return find_sources(config, named, spec);
    if (code != ExitCode::Done) {
        const std::string error = heard[1];
        if (code == ExitCode::BadInput) throw UserError("{}", error);
        throw Error(code, code == ExitCode::CheckFailed ? Reach::AllRanks : Reach::ReportedByAnother, error);
    }
    for (size_t i = 0; i < named.paths.size(); ++i) {
        const auto& [path, weight] = named.paths[i];
        sources.push_back({std::make_shared<const data::TokenSource>(
                               path, data::files_of(heard[1][i].get<std::string>()), named.options),
                           weight});
    }
    return sources;
}

data::Loader training_loader(const config::JobConfig& config, Sources sources) {
    const config::Training& training = config.training;
    return {std::move(sources),
            {.seq_len = training.seq_len,
             .seed = static_cast<uint64_t>(config.debug.seed),
             .shuffle = training.shuffle,
             .attend_across_documents = training.attend_across_documents,
             .count_document_starts = training.count_document_starts}};
}

data::Loader validation_loader(const config::JobConfig& config, Sources sources) {
    return {std::move(sources),
            {.seq_len = config.validation.seq_len.value_or(config.training.seq_len),
             .shuffle = false,
             .attend_across_documents = config.training.attend_across_documents,
             .count_document_starts = config.training.count_document_starts}};
}

constexpr const char *kTrainingData = "the training data", *kValidationData = "the validation data";

/// COLLECTIVE: returns what `make` makes. `fact`, and later `fact_of` the result, names the result, or the
/// mistake of the user for which `make` throws: a mistake that only some ranks have is a difference between
/// ranks. `control`, if there is one, waits for the slowest rank before the comparison, because its watchdog
/// knows of waits for the file system.
template <class Make, class FactOf>
auto made_alike(const mpi::Comm& ranks, comm::Communicator* control, mpi::Fact fact, const Make& make,
                const FactOf& fact_of) {
    std::optional<decltype(make())> made;
    std::exception_ptr mistake;
    try {
        made.emplace(make());
        fact = fact_of(*made);
    } catch (const UserError& error) {
        if (error.code() != ExitCode::BadInput) throw;  // damage, which this rank reports
        mistake = std::current_exception();
        fact.value = error.what();
    }
    if (control != nullptr) comm::maximum(*control, 0);
    mpi::require_same(ranks, {fact});
    if (mistake) std::rethrow_exception(mistake);
    return std::move(*made);
}

/// The fact of a file's contents. A rank that has no such file, or no path to it, has the value "none".
mpi::Fact fact_of_file(const char* key, const fs::path& path) {
    const std::string digest = path.empty() ? "" : mpi::digest_of_file(path);
    return {key, digest.empty() ? "none" : digest, path.empty() ? "" : fmt::format("({})", path.string()),
            mpi::kCopyFile};
}

/// The fact of all forms of the tokenizer in the folder.
mpi::Fact fact_of_tokenizer(const fs::path& folder) {
    std::vector<std::string> digests, paths;
    for (const fs::path& form : tokenizer::tokenizer_files_in(folder)) {
        digests.push_back(mpi::digest_of_file(form));
        paths.push_back(form.string());
    }
    const char* const key = "the tokenizer in model.hf_assets_path";
    if (paths.empty()) return {key, "none", "", mpi::kCopyFile};
    return {key, fmt::format("{}", fmt::join(digests, "+")), fmt::format("({})", fmt::join(paths, ", ")),
            mpi::kCopyFile};
}

mpi::Fact fact_of_data(const char* key, const data::Loader& loader) {
    return {key, loader.digest(), fmt::format("({})", loader.paths()), mpi::kCopyFile};
}

/// Whether ranks may have different values of the key: its contents are compared, or only this rank uses it.
bool may_differ(std::string_view key, const config::JobConfig& config) {
    constexpr std::array<std::string_view, 4> kByContents = {"training.dataset_path", "data.mixture",
                                                             "validation.dataset_path",
                                                             "parallelism.pipeline_parallel_schedule_csv"};
    if (key == "model.hf_assets_path") return !config.checkpoint.initial_load_in_hf;  // may hold the weights
    if (key == "job.dump_folder") return !config.checkpoint.enable;
    return std::ranges::find(kByContents, key) != kByContents.end();
}

}  // namespace

config::CommandLine same_command_line(const mpi::Comm& ranks, const std::vector<std::string>& words) {
    return made_alike(
        ranks, nullptr, {"the command line", ""}, [&] { return config::parse_command_line(words); },
        [](const config::CommandLine& line) {
            return mpi::Fact{"the command line", fmt::format("asks for {}", name_of(line.command))};
        });
}

std::vector<mpi::Fact> setting_facts(const config::JobConfig& config) {
    std::vector<mpi::Fact> facts;
    for (const config::Section& section : config::schema()) {
        for (const config::Field& field : section.fields) {
            if (may_differ(field.key, config)) continue;
            const config::Value value = field.get(config);
            facts.push_back({field.key, config::is_set(value) ? config::toml_text(value) : "unset"});
        }
    }
    return facts;
}

std::vector<mpi::Fact> file_facts(const config::JobConfig& config) {
    const fs::path assets = config.model.hf_assets_path;
    const bool has_config = model::has_hugging_face_config(config.model.hf_assets_path);
    return {fact_of_file("the model's config.json", has_config ? assets / "config.json" : fs::path()),
            fact_of_tokenizer(assets),
            fact_of_file("the file parallelism.pipeline_parallel_schedule_csv",
                         config.parallelism.pipeline_parallel_schedule_csv)};
}

void require_same_settings(const mpi::Comm& ranks, const config::JobConfig& config) {
    if (ranks.size() == 1) return;
    std::vector<mpi::Fact> facts = setting_facts(config);
    facts.insert(facts.begin(), mpi::executable_fact());
    for (mpi::Fact& one : file_facts(config)) facts.push_back(std::move(one));
    mpi::require_same(ranks, facts);
}

data::Loader training_data(const config::JobConfig& config, const model::ModelSpec& spec) {
    return training_loader(config, find_sources(config, training_sources(config, spec), spec));
}

data::Loader same_training_data(const mpi::Comm& ranks, comm::Communicator& control,
                                const config::JobConfig& config, const model::ModelSpec& spec) {
    return made_alike(
        ranks, &control, {kTrainingData, "", "", mpi::kCopyFile},
        [&] {
            return training_loader(config,
                                   same_sources(control, config, training_sources(config, spec), spec));
        },
        [](const data::Loader& loader) { return fact_of_data(kTrainingData, loader); });
}

std::optional<data::Loader> validation_data(const config::JobConfig& config, const model::ModelSpec& spec) {
    if (!config.validation.enable) return {};
    return validation_loader(config, find_sources(config, validation_sources(config, spec), spec));
}

std::optional<train::Validation> make_validation(const mpi::Comm& ranks, comm::Communicator& control,
                                                 const config::JobConfig& config,
                                                 const data::Loader& training,
                                                 const train::TrainerOptions& options,
                                                 train::Trainer& trainer, comm::Mesh& mesh) {
    const config::Validation& validation = config.validation;
    if (!validation.enable) {
        if (validation != config::Validation{})
            spdlog::info("[validation] has no effect: validation.enable is false");
        return {};
    }
    data::Loader loader = made_alike(
        ranks, &control, {kValidationData, "", "", mpi::kCopyFile},
        [&] {
            return validation_loader(
                config,
                same_sources(control, config, validation_sources(config, options.spec), options.spec));
        },
        [](const data::Loader& made) { return fact_of_data(kValidationData, made); });
    if (const auto* known = training.file_with_tokenizer()) loader.check_tokenizer(*known);
    const int64_t step_samples = validation.local_batch_size.value_or(config.training.local_batch_size);
    const int64_t max_samples = validation.steps == train::Validation::kWholeSet
                                    ? train::Validation::kWholeSet
                                    : std::min(validation.steps, loader.num_samples()) * step_samples;
    return train::Validation(std::move(loader), options, validation_batch_sizes(config, mesh.shape()),
                             max_samples, trainer, mesh);
}

std::vector<mpi::Fact> data_path_facts(const config::JobConfig& config) {
    std::vector<std::string> paths = {config.training.dataset_path};
    for (const auto& [path, weight] : config.data.mixture) paths.push_back(path);
    if (config.validation.enable) paths.push_back(config.validation.dataset_path);
    std::vector<mpi::Fact> facts;
    for (const std::string& path : paths) {
        const fs::path fixed =
            path.substr(0, path.find_first_of("*?["));  // of a pattern: the folder before it
        std::error_code ignored;
        const bool is_there = fs::exists(fixed == path ? fixed : folder_of(fixed), ignored);
        facts.push_back({path, is_there ? "found" : "not found"});
    }
    return facts;
}

std::vector<mpi::Fact> data_facts(const config::JobConfig& config, const model::ModelSpec& spec) {
    std::vector<mpi::Fact> facts;
    const auto add = [&](const char* key, const auto& open) {
        try {
            if (const std::optional<data::Loader> loader = open())
                facts.push_back(fact_of_data(key, *loader));
        } catch (const std::exception& error) {
            facts.push_back({key, error.what()});
        }
    };
    add(kTrainingData, [&] { return std::optional(training_data(config, spec)); });
    add(kValidationData, [&] { return validation_data(config, spec); });
    return facts;
}

}  // namespace argosy::setup

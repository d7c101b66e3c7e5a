#include "setup/data_sources.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
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

/// `key`: the option that names the files.
std::vector<data::WeightedSource> open_sources(const config::JobConfig& config, const char* key,
                                               const std::vector<config::MixtureSource>& named,
                                               const model::ModelSpec& spec) {
    constexpr size_t kMaxOpenFiles = 128;  // of all sources; a process may often have 1024 descriptors
    const data::SourceOptions options{
        .checks = config.training.verify_dataset ? data::TokenChecks::WhenFirstRead : data::TokenChecks::None,
        .vocab_size = spec.vocab_size,
        .max_open_files = std::max<size_t>(1, kMaxOpenFiles / named.size())};
    std::vector<data::WeightedSource> sources;
    for (const auto& [path, weight] : named) {
        std::error_code ignored;
        const bool is_pattern = path.find_first_of("*?[") != std::string::npos;
        if (!is_pattern && fs::status(path, ignored).type() == fs::file_type::not_found)
            throw UserError("{}: there is no file {}; make it with prepare-data tokenize", key, path);
        sources.push_back({open_source(path, options, spec), weight});
    }
    check_tokenizer(config.model, sources, spec);
    return sources;
}

}  // namespace

data::Loader training_data(const config::JobConfig& config, const model::ModelSpec& spec) {
    const config::Training& training = config.training;
    std::vector<config::MixtureSource> named = config.data.mixture;
    if (!training.dataset_path.empty()) named.push_back({training.dataset_path});
    if (named.empty()) {
        throw UserError(
            "neither training.dataset_path nor data.mixture is set; make a token file with prepare-data "
            "tokenize");
    }
    return {open_sources(config, training.dataset_path.empty() ? "data.mixture" : "training.dataset_path",
                         named, spec),
            {.seq_len = training.seq_len,
             .seed = static_cast<uint64_t>(config.debug.seed),
             .shuffle = training.shuffle,
             .attend_across_documents = training.attend_across_documents}};
}

std::optional<train::Validation> make_validation(const config::JobConfig& config,
                                                 const data::Loader& training,
                                                 const train::TrainerOptions& options,
                                                 train::Trainer& trainer, comm::Mesh& mesh) {
    const config::Validation& validation = config.validation;
    if (!validation.enable) {
        if (validation != config::Validation{})
            spdlog::info("[validation] has no effect: validation.enable is false");
        return {};
    }
    data::Loader loader(
        open_sources(config, "validation.dataset_path", {{validation.dataset_path}}, options.spec),
        {.seq_len = validation.seq_len.value_or(config.training.seq_len),
         .shuffle = false,
         .attend_across_documents = config.training.attend_across_documents});
    if (const auto* known = training.file_with_tokenizer()) loader.check_tokenizer(*known);
    return train::Validation(std::move(loader), options, validation_batch_sizes(config, mesh.shape()),
                             validation.steps, trainer, mesh);
}

}  // namespace argosy::setup

#include "setup/data_sources.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "setup/setup.h"

namespace argosy::setup {
namespace {

std::shared_ptr<const data::TokenSource> open_source(const std::string& path,
                                                     const data::SourceOptions& options,
                                                     const model::ModelSpec& spec) {
    auto source = std::make_shared<const data::TokenSource>(path, options);
    if (source->vocab_size() <= spec.vocab_size) return source;
    throw UserError("{} has a vocabulary of {} tokens, but the model's has {}; choose a model that fits it",
                    path, source->vocab_size(), spec.vocab_size);
}

/// Compares the digest of the model's tokenizer with those that the token files have.
void check_tokenizer(const config::Model& model, const std::vector<data::WeightedSource>& sources) {
    const auto path = std::filesystem::path(model.hf_assets_path) / "tokenizer.json";
    if (model.hf_assets_path.empty() || !std::filesystem::exists(path)) return;
    const std::string digest = data::tokenizer_file_digest(path);
    for (const data::WeightedSource& source : sources) {
        for (const data::StoredTokens& file : source.source->files()) {
            const std::string& other = file.info.tokenizer_digest;
            if (other.empty() || other == digest) continue;
            throw UserError(
                "{} was made with another tokenizer (XXH3-128 {}) than the model's {} ({}); make it again "
                "with "
                "that one, or, if their tokens are the same, move the model's tokenizer.json away",
                file.path.string(), other, path.string(), digest);
        }
    }
}

std::vector<data::WeightedSource> open_sources(const config::JobConfig& config,
                                               const std::vector<config::MixtureSource>& named,
                                               const model::ModelSpec& spec) {
    constexpr size_t kMaxOpenFiles = 128;  // of all sources; a process may often have 1024 descriptors
    const data::SourceOptions options{
        .checks = config.training.verify_dataset ? data::TokenChecks::WhenFirstRead : data::TokenChecks::None,
        .vocab_size = spec.vocab_size,
        .max_open_files = std::max<size_t>(1, kMaxOpenFiles / named.size())};
    std::vector<data::WeightedSource> sources;
    for (const auto& [path, weight] : named) sources.push_back({open_source(path, options, spec), weight});
    check_tokenizer(config.model, sources);
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
    return {open_sources(config, named, spec),
            {.seq_len = training.seq_len,
             .seed = static_cast<uint64_t>(config.debug.seed),
             .shuffle = training.shuffle,
             .attend_across_documents = training.attend_across_documents}};
}

std::optional<train::Validation> make_validation(const config::JobConfig& config,
                                                 const train::TrainerOptions& options,
                                                 train::Trainer& trainer, comm::Mesh& mesh) {
    const config::Validation& validation = config.validation;
    if (!validation.enable) {
        if (validation != config::Validation{})
            spdlog::info("[validation] has no effect: validation.enable is false");
        return {};
    }
    data::Loader loader(open_sources(config, {{validation.dataset_path}}, options.spec),
                        {.seq_len = validation.seq_len.value_or(config.training.seq_len),
                         .shuffle = false,
                         .attend_across_documents = config.training.attend_across_documents});
    return train::Validation(std::move(loader), options, validation_batch_sizes(config, mesh.shape()),
                             validation.steps, trainer, mesh);
}

}  // namespace argosy::setup

#include "data/token_source.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "data/documents.h"

namespace argosy::data {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_in_folder(const fs::path& folder) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder)) {
        if (entry.path().extension() == ".h5" || entry.path().extension() == ".bin")
            files.push_back(entry.path());
    }
    if (files.empty()) throw UserError("{} holds no token file (.h5, or .bin of Megatron)", folder.string());
    return files;
}

std::vector<fs::path> find_files(const fs::path& path) {
    std::error_code ignored;
    std::vector<fs::path> files = fs::is_directory(path, ignored) ? files_in_folder(path) : matches_of(path);
    // The .bin of a dataset of Megatron stands for its .idx too.
    const std::set<fs::path> all(files.begin(), files.end());
    std::erase_if(files, [&](const fs::path& file) {
        return file.extension() == ".idx" && all.contains(fs::path(file).replace_extension(".bin"));
    });
    std::ranges::sort(files);
    return files;
}

std::vector<StoredTokens> located(const fs::path& path, int64_t vocab_size) {
    std::vector<StoredTokens> files;
    for (const fs::path& file : find_files(path)) files.push_back(locate_tokens(file, vocab_size));
    return files;
}

}  // namespace

std::string tokenizer_of(const TokenInfo& info) {
    if (!info.tokenizer_digest.empty()) return info.tokenizer_digest;
    return info.tokenizer == "none" ? "" : info.tokenizer;
}

void check_same_tokenizer(const StoredTokens& one, const StoredTokens& other) {
    const std::string first = tokenizer_of(one.info), second = tokenizer_of(other.info);
    if (first.empty() || second.empty() || first == second) return;
    throw UserError(
        "{} and {} were made with different tokenizers: {} {} and {} {}; make them with the same one",
        one.path.string(), other.path.string(), one.info.tokenizer, one.info.tokenizer_digest,
        other.info.tokenizer, other.info.tokenizer_digest);
}

TokenSource::TokenSource(const fs::path& path, const SourceOptions& options)
    : TokenSource(path, located(path, options.vocab_size), options) {}

TokenSource::TokenSource(const fs::path& path, std::vector<StoredTokens> files, const SourceOptions& options)
    : path_(path.string()), files_(std::move(files)), max_open_files_(options.max_open_files) {
    if (options.checks == TokenChecks::WhenFirstRead) budget_ = std::make_shared<CheckBudget>();
}

int64_t TokenSource::num_tokens() const {
    int64_t sum = 0;
    for (const StoredTokens& file : files_) sum += file.tokens.num_elements;
    return sum;
}

int64_t TokenSource::vocab_size() const {
    int64_t largest = 0;
    for (const StoredTokens& file : files_) largest = std::max(largest, file.info.vocab_size);
    return largest;
}

std::shared_ptr<const TokenFile> TokenSource::open(size_t file) const {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(open_, file, &OpenFile::first);
    if (found != open_.end()) {
        open_.splice(open_.begin(), open_, found);
    } else {
        open_.emplace_front(file, std::make_shared<const TokenFile>(files_.at(file), budget_));
        if (open_.size() > max_open_files_) open_.pop_back();
    }
    return open_.front().second;
}

}  // namespace argosy::data

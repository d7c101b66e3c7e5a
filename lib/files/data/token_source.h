// A source of tokens: one file, or many whose samples form one stream, in the order of their names. The
// descriptions of all files are read at once (some hundred bytes each); a file is opened when it is first
// read from, and only the files that were read last stay open. The cost of 10^4 files is a second and a few
// MB.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "data/token_file.h"

namespace argosy::data {

struct SourceOptions {
    TokenChecks checks = TokenChecks::WhenFirstRead;
    int64_t vocab_size = kMaxVocabSize;  // of files that do not say theirs (stored_tokens.h)
    size_t max_open_files = 128;         // each has a descriptor, or two of Megatron
};

class TokenSource {
  public:
    /// `path`: a file; a folder, which stands for all .h5 and .bin files in it; or a pattern with `*`, `?` or
    /// `[...]`. Throws UserError if there is no such file, and as locate_tokens() does. Calls HDF5, so it
    /// runs on the one thread that h5/dataset.h requires.
    explicit TokenSource(const std::filesystem::path& path, const SourceOptions& options = {});

    /// The source at `path`, whose files() another rank has found. Reads nothing.
    TokenSource(const std::filesystem::path& path, std::vector<StoredTokens> files,
                const SourceOptions& options);

    const std::string& path() const { return path_; }
    const std::vector<StoredTokens>& files() const { return files_; }
    int64_t num_tokens() const;

    /// The largest vocabulary of the files.
    int64_t vocab_size() const;

    /// Opens a file, or returns the open one. Any thread may call this.
    std::shared_ptr<const TokenFile> open(size_t file) const;

  private:
    using OpenFile = std::pair<size_t, std::shared_ptr<const TokenFile>>;

    std::string path_;
    std::vector<StoredTokens> files_;
    size_t max_open_files_;
    std::shared_ptr<CheckBudget> budget_;  // of all files together
    mutable std::mutex mutex_;
    mutable std::list<OpenFile> open_;  // the file that was read last comes first
};

/// The identity of a file's tokenizer: its digest or, without one, its name. Empty for files of token
/// numbers ("none") and of Megatron, which do not say it.
std::string tokenizer_of(const TokenInfo& info);

/// Throws UserError if both files say their tokenizer, and it is not the same.
void check_same_tokenizer(const StoredTokens& one, const StoredTokens& other);

}  // namespace argosy::data

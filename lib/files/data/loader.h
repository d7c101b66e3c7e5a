// Cuts token files into samples, orders them and mixes sources. The tokens of sample p of a run depend only
// on the files and the LoaderOptions, not on ranks or batch sizes. The loader keeps no position, so a resumed
// run needs no state of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/mixture_order.h"
#include "data/token_source.h"

namespace argosy::data {

struct LoaderOptions {
    int64_t seq_len = 0;
    uint64_t seed = 0;
    bool shuffle = true;                  // each epoch has a new keyed permutation; false: the files' order
    bool attend_across_documents = true;  // false: read() also gives positions within documents
    bool count_document_starts = true;    // false: a target that begins a document is -1
};

/// A source, and its share of the samples.
struct WeightedSource {
    std::shared_ptr<const TokenSource> source;
    double weight = 1;
};

class Loader {
  public:
    /// Mixes the sources by their weights (mixture_order.h). Each source has epochs of its own. Throws
    /// UserError if a source holds no sample of that length or no token that counts, and if the tokenizers of
    /// the files differ.
    Loader(std::vector<WeightedSource> sources, const LoaderOptions& options);

    /// One source, of one file or of the files of a folder.
    Loader(const std::filesystem::path& path, const LoaderOptions& options)
        : Loader({{std::make_shared<TokenSource>(path)}}, options) {}

    /// Samples of all sources, each once. Sample i of a file is its tokens i * seq_len .. (i + 1) * seq_len;
    /// the last of them is only a target.
    int64_t num_samples() const { return num_samples_; }
    int64_t seq_len() const { return options_.seq_len; }
    bool gives_positions() const { return !options_.attend_across_documents; }

    /// Reads samples first_position .. first_position+count-1 of the run, which are numbered across epochs
    /// without end: the inputs, as targets the tokens that follow them, or -1 where those do not count, and
    /// unless `positions` is null each token's position in its document; all [count, seq_len] row-major. A
    /// document that began in an earlier sample begins again in this one. Any thread may call this. REQUIRES:
    /// positions is null unless gives_positions().
    void read(int64_t first_position, int64_t count, int64_t* tokens, int64_t* targets,
              int64_t* positions = nullptr) const;

    /// Returns the number of the sample at a position of the run: the samples of the first source's first
    /// file come first, then those of its second file and so on.
    int64_t sample_at(int64_t position) const;

    /// A file that says its tokenizer; null if none does.
    const StoredTokens* file_with_tokenizer() const;
    /// Throws UserError if a file says another tokenizer than the file `known`.
    void check_tokenizer(const StoredTokens& known) const;

    /// A hash, in hex, of the sources' weights and of each file's number of tokens, number of those that
    /// count, vocabulary and tokenizer. Runs with other samples at a position, for the same LoaderOptions,
    /// differ in it, unless a file was replaced by one of the same numbers and tokenizer.
    std::string fingerprint() const;

    /// A hash, in hex, of fingerprint() and of the checksums that the files have: it differs between files of
    /// the same numbers, too. Files of Megatron have no checksums.
    std::string digest() const;
    /// The paths of the sources, for messages: "a.h5, b.h5".
    std::string paths() const;

  private:
    /// A source's place among all samples.
    struct Part {
        std::shared_ptr<const TokenSource> source;
        std::vector<int64_t> first_samples;  // of each file: the number of samples before it in the source
        int64_t num_samples = 0;
        int64_t samples_before = 0;  // of the sources before this one
    };
    Part make_part(std::shared_ptr<const TokenSource> source) const;
    /// A sample: its part, and its number within that part.
    struct Place {
        const Part& part;
        int64_t sample = 0;
    };
    Place place_at(int64_t position) const;
    void read_documents(const TokenFile& file, int64_t begin, int64_t* targets, int64_t* positions) const;

    LoaderOptions options_;
    MixtureOrder order_;
    std::vector<Part> parts_;
    int64_t num_samples_ = 0;
};

}  // namespace argosy::data

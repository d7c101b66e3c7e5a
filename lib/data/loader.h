// Cuts a token file into samples and orders them. The tokens of sample p of a run depend only on the file and
// the LoaderOptions, not on ranks or batch sizes. The loader keeps no position, so a resumed run needs no
// state of it.
#pragma once

#include <cstdint>

#include "data/token_file.h"

namespace argosy::data {

struct LoaderOptions {
    int64_t seq_len = 0;
    uint64_t seed = 0;
    bool shuffle = true;                  // each epoch has a new keyed permutation; false: the file's order
    bool attend_across_documents = true;  // false: read() also gives positions within documents
};

class Loader {
  public:
    /// Throws UserError if the file holds no sample of that length, or if positions within documents are
    /// wanted and the file does not say where documents begin. REQUIRES: the file outlives the loader.
    Loader(const TokenFile& file, const LoaderOptions& options);

    /// Samples per epoch. Sample i is tokens i * seq_len .. (i + 1) * seq_len; the last of them is only a
    /// target.
    int64_t num_samples() const { return num_samples_; }
    int64_t seq_len() const { return options_.seq_len; }
    bool gives_positions() const { return !options_.attend_across_documents; }

    /// Reads samples first_position .. first_position+count-1 of the run, which are numbered across epochs
    /// without end: the inputs, as targets the tokens that follow them, and unless `positions` is null each
    /// token's position in its document; all [count, seq_len] row-major. A document that began in an earlier
    /// sample begins again in this one. Any thread may call this. REQUIRES: positions is null unless
    /// gives_positions().
    void read(int64_t first_position, int64_t count, int64_t* tokens, int64_t* targets,
              int64_t* positions = nullptr) const;

    /// Returns the number, within the file, of the sample at a position of the run.
    int64_t sample_at(int64_t position) const;

  private:
    const TokenFile& file_;
    LoaderOptions options_;
    int64_t num_samples_;
};

}  // namespace argosy::data

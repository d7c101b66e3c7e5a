// Cuts a token file into samples and orders them: which tokens make sample p of a run is a function of the
// file, the sequence length and the seed alone, never of ranks or batch sizes. Holds no position, so resuming
// needs none.
#pragma once

#include <cstdint>

#include "data/token_file.h"

namespace argosy::data {

struct LoaderOptions {
    int64_t seq_len = 0;
    uint64_t seed = 0;
    bool shuffle = true;  // a new keyed permutation each epoch; false: the file's order
};

class Loader {
  public:
    /// The file must outlive the loader. UserError when it holds no sample of that length.
    Loader(const TokenFile& file, const LoaderOptions& options);

    /// Samples an epoch: sample i is tokens [i*seq_len, i*seq_len + seq_len], the last of which is only a
    /// target.
    int64_t num_samples() const { return num_samples_; }
    int64_t seq_len() const { return options_.seq_len; }

    /// Samples first_position .. first_position+count-1 of the run, counted over all epochs without end:
    /// inputs and the tokens that follow them, both [count, seq_len] row-major. May be called from any
    /// thread.
    void read(int64_t first_position, int64_t count, int64_t* tokens, int64_t* targets) const;

    /// The sample that stands at a position of the run.
    int64_t sample_at(int64_t position) const;

  private:
    const TokenFile& file_;
    LoaderOptions options_;
    int64_t num_samples_;
};

}  // namespace argosy::data

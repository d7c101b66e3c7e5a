#include "data/loader.h"

#include "base/error.h"
#include "base/random.h"

namespace argosy::data {

Loader::Loader(const TokenFile& file, const LoaderOptions& options) : file_(file), options_(options) {
    if (options_.seq_len < 1)
        throw UserError("the sequence length is {}; it must be 1 or more", options_.seq_len);
    num_samples_ = (file_.size() - 1) / options_.seq_len;
    if (num_samples_ == 0) {
        throw UserError(
            "{} holds {} tokens, but one sample of sequence length {} needs {}: shorten the sequence or add "
            "data",
            file_.path().string(), file_.size(), options_.seq_len, options_.seq_len + 1);
    }
    if (gives_positions() && !file_.knows_documents()) {
        throw UserError(
            "training.attend_across_documents = false, but {} does not say where documents begin: it is a "
            "file "
            "of version 1 without an end-of-text token. Make it again with prepare-data",
            file_.path().string());
    }
}

void Loader::read(int64_t first_position, int64_t count, int64_t* tokens, int64_t* targets,
                  int64_t* positions) const {
    const int64_t seq_len = options_.seq_len;
    for (int64_t row = 0; row < count; ++row) {
        const int64_t begin = sample_at(first_position + row) * seq_len;
        file_.copy(begin, seq_len, tokens + row * seq_len);
        file_.copy(begin + 1, seq_len, targets + row * seq_len);
        if (positions != nullptr) file_.copy_positions(begin, seq_len, positions + row * seq_len);
    }
}

int64_t Loader::sample_at(int64_t position) const {
    ARGOSY_CHECK(position >= 0, "sample position {}", position);
    const int64_t epoch = position / num_samples_, index = position % num_samples_;
    return options_.shuffle ? Permutation(num_samples_, options_.seed, epoch).at(index) : index;
}

}  // namespace argosy::data

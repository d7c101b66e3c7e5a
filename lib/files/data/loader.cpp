#include "data/loader.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"

namespace argosy::data {
namespace {

std::vector<double> weights_of(const std::vector<WeightedSource>& sources) {
    std::vector<double> weights;
    for (const WeightedSource& source : sources) weights.push_back(source.weight);
    return weights;
}

void check_counts(const TokenSource& source) {
    for (const StoredTokens& file : source.files()) {
        if (file.counted_tokens > 0) return;
    }
    throw UserError("none of the {} tokens of {} counts as a target: its loss mask is zero throughout",
                    source.num_tokens(), source.path());
}

}  // namespace

Loader::Loader(std::vector<WeightedSource> sources, const LoaderOptions& options)
    : options_(options), order_(weights_of(sources)) {
    if (options_.seq_len < 1)
        throw UserError("the sequence length is {}; it must be 1 or more", options_.seq_len);
    for (WeightedSource& source : sources) {
        check_counts(*source.source);
        Part part = make_part(std::move(source.source));
        part.samples_before = std::exchange(num_samples_, num_samples_ + part.num_samples);
        parts_.push_back(std::move(part));
    }
    if (const StoredTokens* known = file_with_tokenizer()) check_tokenizer(*known);
}

Loader::Part Loader::make_part(std::shared_ptr<const TokenSource> source) const {
    Part part{.source = std::move(source)};
    for (const StoredTokens& file : part.source->files()) {
        part.first_samples.push_back(part.num_samples);
        part.num_samples += (file.tokens.num_elements - 1) / options_.seq_len;
    }
    if (part.num_samples > 0) return part;
    throw UserError(
        "{} holds {} tokens, but one sample of sequence length {} needs {}: shorten the sequence or add data",
        part.source->path(), part.source->num_tokens(), options_.seq_len, options_.seq_len + 1);
}

const StoredTokens* Loader::file_with_tokenizer() const {
    for (const Part& part : parts_) {
        for (const StoredTokens& file : part.source->files()) {
            if (!tokenizer_of(file.info).empty()) return &file;
        }
    }
    return nullptr;
}

void Loader::check_tokenizer(const StoredTokens& known) const {
    for (const Part& part : parts_) {
        for (const StoredTokens& file : part.source->files()) check_same_tokenizer(known, file);
    }
}

void Loader::read(int64_t first_position, int64_t count, int64_t* tokens, int64_t* targets,
                  int64_t* positions) const {
    const int64_t seq_len = options_.seq_len;
    for (int64_t row = 0; row < count; ++row) {
        const auto [part, sample] = place_at(first_position + row);
        const auto after = std::ranges::upper_bound(part.first_samples, sample);
        const auto number = after - part.first_samples.begin() - 1;
        const auto file = part.source->open(number);
        const int64_t begin = (sample - part.first_samples[number]) * seq_len;
        file->copy(begin, seq_len, tokens + row * seq_len);
        file->copy(begin + 1, seq_len, targets + row * seq_len);
        file->mask_targets(begin + 1, seq_len, targets + row * seq_len);
        if (positions != nullptr || !options_.count_document_starts)
            read_documents(*file, begin, targets + row * seq_len,
                           positions ? positions + row * seq_len : nullptr);
    }
}

/// Reads the positions of the sample that begins with token `begin`, unless they are null, and marks the
/// targets that do not count because a document begins with them.
void Loader::read_documents(const TokenFile& file, int64_t begin, int64_t* targets,
                            int64_t* positions) const {
    const int64_t seq_len = options_.seq_len;
    std::vector<int64_t> found(seq_len + 1);  // also of the last target
    file.copy_positions(begin, seq_len + 1, found.data());
    if (positions != nullptr) std::copy_n(found.begin(), seq_len, positions);
    for (int64_t i = 0; i < seq_len && !options_.count_document_starts; ++i)
        if (found[i + 1] == 0) targets[i] = -1;
}

Loader::Place Loader::place_at(int64_t position) const {
    ARGOSY_CHECK(position >= 0, "sample position {}", position);
    const auto [stream, number] = order_.at(position);
    const Part& part = parts_[stream];
    const int64_t epoch = number / part.num_samples, index = number % part.num_samples;
    if (!options_.shuffle) return {part, index};
    // Sources of the same size have orders of their own.
    const uint64_t key = options_.seed ^ (stream == 0 ? 0 : name_key(fmt::format("source {}", stream)));
    return {part, Permutation(part.num_samples, key, epoch).at(index)};
}

int64_t Loader::sample_at(int64_t position) const {
    const auto [part, sample] = place_at(position);
    return part.samples_before + sample;
}

std::string Loader::fingerprint() const {
    std::string text;
    for (size_t i = 0; i < parts_.size(); ++i) {
        text += fmt::format("source {}\n", order_.weights()[i]);
        for (const StoredTokens& file : parts_[i].source->files()) {
            text += fmt::format("{} {} {} {}\n", file.tokens.num_elements, file.info.vocab_size,
                                file.info.tokenizer, file.info.tokenizer_digest);
            if (file.loss_mask.num_elements > 0)
                text += fmt::format("{} of them count\n", file.counted_tokens);
        }
    }
    return fmt::format("{:016x}", name_key(text));
}

std::string Loader::digest() const {
    std::string text = fingerprint();
    for (const Part& part : parts_)
        for (const StoredTokens& file : part.source->files()) text += fmt::format(" {}", file.checksums_hash);
    return fmt::format("{:016x}", name_key(text));
}

std::string Loader::paths() const {
    std::vector<std::string> paths;
    for (const Part& part : parts_) paths.push_back(part.source->path());
    return listed(paths, /*max_named=*/4);
}

}  // namespace argosy::data

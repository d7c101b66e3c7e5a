// Turns JSONL records into a token file, record by record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace argosy::data {

struct TokenizeOptions {
    std::vector<std::filesystem::path> inputs;  // JSONL, see data/records.h
    std::filesystem::path output;
    std::optional<int64_t> vocab_size;  // for {"tokens"} records; default: their largest token plus one
};

/// Entropies in nats per token (data/statistics.h).
struct TokenizeResult {
    int64_t num_tokens, num_documents, vocab_size;
    double unigram_entropy, bigram_entropy;
    int64_t
        bigram_tokens;  // what bigram_entropy is over: all tokens, unless they have too many distinct pairs
};

/// {"text"} records become their bytes and an end of text; {"tokens"} records stay unchanged. UserError if
/// the inputs mix both kinds.
TokenizeResult tokenize(const TokenizeOptions& options);

}  // namespace argosy::data

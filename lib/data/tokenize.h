// Turns JSONL records into a token file, streaming.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace argosy::data {

struct TokenizeOptions {
    std::vector<std::filesystem::path> inputs;  // JSONL, see data/records.h
    std::filesystem::path output;
    std::optional<int64_t> vocab_size;  // of {"tokens"} records; default: their largest token plus one
};

/// Entropies in nats per token, see data/statistics.h.
struct TokenizeResult {
    int64_t num_tokens, num_documents, vocab_size;
    double unigram_entropy, bigram_entropy;
    int64_t
        bigram_tokens;  // what bigram_entropy is over: all tokens, unless they have too many distinct pairs
};

/// {"text"} records become their bytes and an end of text, {"tokens"} records stay as they are. UserError
/// where the inputs mix the two.
TokenizeResult tokenize(const TokenizeOptions& options);

}  // namespace argosy::data

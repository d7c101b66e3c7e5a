// Turns JSONL records into a token file, record by record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "tokenizer/tokenizer.h"

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
    /// Number of tokens that bigram_entropy covers: all, unless they have too many distinct pairs.
    int64_t bigram_tokens;
};

/// Writes the token file. A {"text"} record becomes the tokens of its text, with the tokenizer's prefix and
/// suffix, and an end of text; a {"tokens"} record stays unchanged. Throws UserError if the inputs mix both
/// kinds.
TokenizeResult tokenize(const TokenizeOptions& options, const tokenizer::Tokenizer& tokenizer);

}  // namespace argosy::data

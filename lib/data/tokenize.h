// Turns JSONL records into a token file, record by record. The tokenizer for texts is the simplest one: each
// byte of a text is a token, and one more token ends a document.
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
    /// Number of tokens that bigram_entropy covers: all, unless they have too many distinct pairs.
    int64_t bigram_tokens;
};

/// Writes the token file. A {"text"} record becomes its bytes and an end of text; a {"tokens"} record stays
/// unchanged. Throws UserError if the inputs mix both kinds.
TokenizeResult tokenize(const TokenizeOptions& options);

inline constexpr const char* kByteTokenizer = "bytes";  // the name on command lines and in token files
inline constexpr int64_t kByteVocabSize = 257;

}  // namespace argosy::data

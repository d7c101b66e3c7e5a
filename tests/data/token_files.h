// Token files for tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "data/token_writer.h"
#include "data/tokenize.h"
#include "tokenizer/tokenizer.h"

namespace argosy::data {

inline void write_tokens(const std::filesystem::path& path, const std::vector<uint32_t>& tokens,
                         int64_t vocab_size) {
    TokenWriter writer(path, vocab_size);
    writer.append_document(tokens);
    writer.commit(
        {.vocab_size = vocab_size, .end_of_text = kNoEndOfText, .tokenizer = "none", .tokenizer_digest = ""});
}

/// The stream 0, 1, 2, ...: each token equals its position.
inline std::vector<uint32_t> counted_tokens(int64_t count) {
    std::vector<uint32_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), 0);
    return tokens;
}

inline std::vector<int64_t> all_tokens(const TokenFile& file) {
    std::vector<int64_t> tokens(file.size());
    file.copy(0, file.size(), tokens.data());
    return tokens;
}

/// Makes the token file in this process alone.
inline TokenizeResult tokenize_with(const std::string& tokenizer, const TokenizeOptions& options) {
    const auto opened = tokenizer::open_tokenizer(tokenizer);
    const auto chat_template = tokenizer::open_chat_template(tokenizer, *opened);
    TokenizeOptions with_template = options;
    with_template.chat_template = chat_template.get();
    TokenizeJob job(with_template, *opened);
    job.begin();
    job.make_parts(0, 1);
    return job.finish();
}

}  // namespace argosy::data

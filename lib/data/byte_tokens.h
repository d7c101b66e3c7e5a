// The simplest tokenizer: each byte of the text is a token, and one more token ends a document.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace argosy::data {

inline constexpr const char* kByteTokenizer = "bytes";  // its name on command lines and in token files
inline constexpr uint32_t kByteEndOfText = 256;
inline constexpr int64_t kByteVocabSize = 257;

/// Replaces `tokens` by a document's tokens: its bytes and the end of text.
inline void encode_bytes(std::string_view text, std::vector<uint32_t>& tokens) {
    tokens.resize(text.size() + 1);
    for (size_t i = 0; i < text.size(); ++i) tokens[i] = static_cast<unsigned char>(text[i]);
    tokens.back() = kByteEndOfText;
}

}  // namespace argosy::data

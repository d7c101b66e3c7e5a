#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/strict_json.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/tokenizer_file.h"

namespace argosy::tokenizer {
namespace {

constexpr int kNumSpecialTokens = 256;
constexpr std::string_view kBeginOfText = "<|begin_of_text|>", kEndOfText = "<|end_of_text|>";

/// The name of one of Llama 3's special tokens, which follow the tokens of the file.
std::string special_token(int number) {
    switch (number) {
        case 0:
            return std::string(kBeginOfText);
        case 1:
            return std::string(kEndOfText);
        case 6:
            return "<|start_header_id|>";
        case 7:
            return "<|end_header_id|>";
        case 9:
            return "<|eot_id|>";
        default:
            // The reserved tokens are numbered as if the five above were not among them.
            return fmt::format("<|reserved_special_token_{}|>", number < 6   ? number - 2
                                                                : number < 9 ? 4
                                                                             : number - 5);
    }
}

int value_of_digit(char digit) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t value = kDigits.find(digit);
    return value == kDigits.npos ? -1 : static_cast<int>(value);
}

/// Decodes base 64 with its padding. Returns nothing if the text is no base 64 of at least one byte.
std::optional<std::string> decode_base64(std::string_view text) {
    if (text.empty() || text.size() % 4 != 0) return std::nullopt;
    const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
    std::string bytes;
    uint32_t bits = 0;
    for (size_t i = 0; i < text.size() - padding; ++i) {
        const int value = value_of_digit(text[i]);
        if (value < 0) return std::nullopt;
        bits = bits << 6 | static_cast<uint32_t>(value);
        if (i % 4 != 0) bytes.push_back(static_cast<char>(bits >> (6 - 2 * (i % 4))));
    }
    return bytes;
}

struct TokenLine {
    std::string token;
    uint32_t rank;
};

/// Reads a line: a token in base 64, a space, and its rank.
std::optional<TokenLine> read_token_line(std::string_view line) {
    const size_t space = line.find(' ');
    if (space == line.npos) return std::nullopt;
    auto token = decode_base64(line.substr(0, space));
    uint32_t rank = 0;
    const auto [end, error] = std::from_chars(line.data() + space + 1, line.data() + line.size(), rank);
    if (!token || error != std::errc() || end != line.data() + line.size()) return std::nullopt;
    return TokenLine{std::move(*token), rank};
}

/// Returns the tokens in the order of their ranks, which are 0, 1, ...
std::vector<std::string> read_tokens(const TokenizerFile& file) {
    std::vector<std::string> tokens;
    size_t number = 0;
    for (std::string_view rest = file.content; !rest.empty();) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        std::string_view line = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        ++number;
        if (line.ends_with('\r')) line.remove_suffix(1);
        auto token = read_token_line(line);
        if (!token) {
            throw UserError("{}:{}: {} is not a base-64 token with its rank", file.path.string(), number,
                            shown(line));
        }
        if (token->rank != tokens.size()) {
            throw UserError("{}:{}: the rank is {}, but the ranks of the lines must be 0, 1, 2 ...",
                            file.path.string(), number, token->rank);
        }
        tokens.push_back(std::move(token->token));
    }
    return tokens;
}

BpeVocabulary vocabulary_of(const std::vector<std::string>& tokens, const std::string& file) {
    BpeVocabulary vocabulary(2 * tokens.size());
    for (uint32_t id = 0; id < tokens.size(); ++id) {
        if (!vocabulary.emplace(tokens[id], id).second)
            throw UserError("{}:{}: the token {} occurs twice", file, id + 1, shown(tokens[id]));
    }
    return vocabulary;
}

/// tiktoken merges two neighbors whenever their bytes together are a token; the rank is that of the token.
std::vector<BpeMerge> merges_of(const std::vector<std::string>& tokens, const BpeVocabulary& vocabulary) {
    std::vector<BpeMerge> merges;
    for (uint32_t id = 0; id < tokens.size(); ++id) {
        const std::string_view token = tokens[id];
        for (size_t size = 1; size < token.size(); ++size) {
            const auto left = vocabulary.find(token.substr(0, size));
            if (left == vocabulary.end()) continue;
            const auto right = vocabulary.find(token.substr(size));
            if (right == vocabulary.end()) continue;
            merges.push_back({.left = left->second, .right = right->second, .merged = id, .rank = id});
        }
    }
    return merges;
}

}  // namespace

bool is_tiktoken(const std::string& content) {
    std::string_view line = std::string_view(content).substr(0, content.find('\n'));
    if (line.ends_with('\r')) line.remove_suffix(1);
    return read_token_line(line).has_value();
}

std::unique_ptr<Tokenizer> read_tiktoken(const TokenizerFile& file) {
    const std::string name = file.path.string();
    if (file.path.filename() != "tokenizer.model") {
        throw UserError(
            "{} is a tiktoken file, which does not say what its pattern and special tokens are; only "
            "Llama 3's file is known, by its name tokenizer.model",
            name);
    }
    BpeParts parts;
    parts.texts = read_tokens(file);
    parts.whole_pieces = vocabulary_of(parts.texts, name);
    for (uint32_t byte = 0; byte < 256; ++byte) {
        const auto found = parts.whole_pieces.find(std::string(1, static_cast<char>(byte)));
        if (found == parts.whole_pieces.end())
            throw UserError("{} has no token for the byte {:#04x}", name, byte);
        parts.byte_ids[byte] = found->second;
    }
    parts.merges = merges_of(parts.texts, parts.whole_pieces);
    parts.splits = {{.pattern = std::make_shared<Pattern>(kLlama3Pattern, name)}};
    const auto first = static_cast<uint32_t>(parts.texts.size());
    const auto find_special = [&](std::string_view token) {
        for (int number = 0; number < kNumSpecialTokens; ++number)
            if (special_token(number) == token) return first + number;
        throw UserError("{}: Llama 3 has no special token {}", name, shown(token));
    };
    // A text's special tokens are read as text, so the model knows only their ids.
    parts.texts.resize(first + kNumSpecialTokens);
    parts.info = {.name = file.path.filename().string(),
                  .digest = file.digest,
                  .vocab_size = static_cast<int64_t>(parts.texts.size()),
                  .prefix = {first},
                  .suffix = {},
                  .begin_of_text = find_special(file.begin_of_text.value_or(std::string(kBeginOfText))),
                  .end_of_text = find_special(file.end_of_text.value_or(std::string(kEndOfText)))};
    return make_bpe_tokenizer(std::move(parts));
}

}  // namespace argosy::tokenizer

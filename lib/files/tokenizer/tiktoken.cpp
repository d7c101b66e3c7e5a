#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <span>
#include <sstream>

#include "base/error.h"
#include "base/strict_json.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/tokenizer_file.h"

namespace argosy::tokenizer {
namespace {

/// Consecutive special tokens: `{}` in the name becomes `first_number`, `first_number` + 1, ...
struct SpecialTokens {
    uint32_t offset;  // of the first id from the number of the file's tokens
    const char* name;
    uint32_t count = 1, first_number = 0;
};

/// Meta publishes two lists of names for Llama 3's special tokens. These are the names of April 2024, and the
/// names that Llama 3.1 gave to reserved ones.
const std::vector<SpecialTokens> kLlama3Tokens = {{0, "<|begin_of_text|>"},
                                                  {1, "<|end_of_text|>"},
                                                  {2, "<|reserved_special_token_{}|>", 4},
                                                  {6, "<|start_header_id|>"},
                                                  {7, "<|end_header_id|>"},
                                                  {8, "<|reserved_special_token_{}|>", 1, 4},
                                                  {9, "<|eot_id|>"},
                                                  {10, "<|reserved_special_token_{}|>", 246, 5},
                                                  {4, "<|finetune_right_pad_id|>"},
                                                  {5, "<|step_id|>"},
                                                  {8, "<|eom_id|>"},
                                                  {10, "<|python_tag|>"}};
const std::vector<SpecialTokens> kLlama4Tokens = {
    {0, "<|begin_of_text|>"},
    {1, "<|end_of_text|>"},
    {2, "<|fim_prefix|>"},
    {3, "<|fim_middle|>"},
    {4, "<|fim_suffix|>"},
    {5, "<|header_start|>"},
    {6, "<|header_end|>"},
    {7, "<|eom|>"},
    {8, "<|eot|>"},
    {9, "<|step|>"},
    {10, "<|text_post_train_reserved_special_token_{}|>", 6},
    {16, "<|python_start|>"},
    {17, "<|python_end|>"},
    {18, "<|finetune_right_pad|>"},
    {19, "<|text_post_train_reserved_special_token_{}|>", 61, 8},
    {80, "<|image_start|>"},
    {81, "<|image_end|>"},
    {82, "<|vision_reserved_special_token_{}|>", 2},
    {84, "<|tile_x_separator|>"},
    {85, "<|tile_y_separator|>"},
    {86, "<|vision_reserved_special_token_{}|>", 4, 2},
    {90, "<|image|>"},
    {91, "<|vision_reserved_special_token_{}|>", 1, 6},
    {92, "<|patch|>"},
    {93, "<|vision_reserved_special_token_{}|>", 1041, 7},
    {1134, "<|reasoning_reserved_special_token_{}|>", 8},
    {1142, "<|reasoning_thinking_start|>"},
    {1143, "<|reasoning_thinking_end|>"},
    {1144, "<|reserved_special_token_{}|>", 904}};
const std::vector<SpecialTokens> kQwenTokens = {
    {0, "<|endoftext|>"}, {1, "<|im_start|>"}, {2, "<|im_end|>"}, {3, "<|extra_{}|>", 205}};
const std::vector<SpecialTokens> kCl100kTokens = {{1, "<|endoftext|>"},
                                                  {2, "<|fim_prefix|>"},
                                                  {3, "<|fim_middle|>"},
                                                  {4, "<|fim_suffix|>"},
                                                  {20, "<|endofprompt|>"}};
const std::vector<SpecialTokens> kO200kTokens = {{1, "<|endoftext|>"}, {20, "<|endofprompt|>"}};
const std::vector<SpecialTokens> kGpt2Tokens = {{0, "<|endoftext|>"}};

/// A tiktoken file holds tokens and their ranks. The pattern and the special tokens are in the publisher's
/// program, so the file is recognized by its bytes.
struct KnownFile {
    const char* name;
    std::string_view digest;  // XXH3-128, without "\r"
    size_t num_tokens;
    const char* pattern;
    const std::vector<SpecialTokens>& specials;
    const char* begin_of_text;  // precedes each text; null: nothing does
    const char* end_of_text;
    bool normalizes_to_nfc = false;
    bool divides_runs = false;
};

/// The SHA-256 with which each file is published begins with, in this order: 82e9d319, d0bdbaf5, b2b1b8df,
/// 223921b7, 446a9538, 306cd27f (also r50k_base.tiktoken).
const std::array kKnownFiles = {
    KnownFile{"Llama 3", "22e6ee98364f2a1fe7339703bb9e9d7b", 128000, kLlama3Pattern, kLlama3Tokens,
              "<|begin_of_text|>", "<|end_of_text|>", false, true},
    KnownFile{"Llama 4", "fd1ec8f19c117ba2d2fc82dae9636e64", 200000, kO200kPattern, kLlama4Tokens,
              "<|begin_of_text|>", "<|end_of_text|>", false, true},
    KnownFile{"Qwen", "d68162fbd6d3acb39f288efcb5368aab", 151643, kQwenPattern, kQwenTokens, nullptr,
              "<|endoftext|>", true},
    KnownFile{"cl100k_base", "7cdb781bb5d59657aa5d7bf38900641a", 100256, kLlama3Pattern, kCl100kTokens,
              nullptr, "<|endoftext|>"},
    KnownFile{"o200k_base", "dee5d4ced09a2db672a095e82ca109d6", 199998, kO200kPattern, kO200kTokens, nullptr,
              "<|endoftext|>"},
    KnownFile{"gpt2", "aa5ef69a716d8a563cb2fbe95939bd2d", 50256, kGpt2Pattern, kGpt2Tokens, nullptr,
              "<|endoftext|>"}};

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

/// tiktoken merges two neighbors whenever their bytes together are a token; the rank is that of the token.
std::vector<BpeMerge> merges_of(const std::vector<std::string>& tokens, const BpeVocabulary& ids) {
    std::vector<BpeMerge> merges;
    for (const std::string& text : tokens) {
        const std::string_view token = text;
        const uint32_t id = ids.find(token)->second;
        for (size_t size = 1; size < token.size(); ++size) {
            const auto left = ids.find(token.substr(0, size));
            if (left == ids.end()) continue;
            const auto right = ids.find(token.substr(size));
            if (right == ids.end()) continue;
            merges.push_back({.left = left->second, .right = right->second, .merged = id, .rank = id});
        }
    }
    return merges;
}

/// A byte-level BPE of `tokens`, in the order of their ranks. The ids of special tokens come first, if
/// `num_specials_before` is not 0.
BpeParts parts_of(const std::vector<std::string>& tokens, uint32_t num_specials_before,
                  const std::string& file) {
    BpeParts parts;
    parts.texts.resize(num_specials_before);
    parts.texts.insert(parts.texts.end(), tokens.begin(), tokens.end());
    parts.whole_pieces.reserve(tokens.size());
    for (uint32_t rank = 0; rank < tokens.size(); ++rank) {
        if (!parts.whole_pieces.emplace(tokens[rank], num_specials_before + rank).second)
            throw UserError("{}: the token {} occurs twice, also with the rank {}", file, shown(tokens[rank]),
                            rank);
    }
    for (uint32_t byte = 0; byte < 256; ++byte) {
        const auto found = parts.whole_pieces.find(std::string(1, static_cast<char>(byte)));
        if (found == parts.whole_pieces.end())
            throw UserError("{} has no token for the byte {:#04x}", file, byte);
        parts.byte_ids[byte] = found->second;
    }
    parts.merges = merges_of(tokens, parts.whole_pieces);
    return parts;
}

AddedToken special_token(const std::string& name, uint32_t id) {
    return {.content = name, .id = id, .special = true, .normalized = false};
}

/// The id of a special token that tokenizer_config.json or the command line names.
uint32_t find_special(const KnownFile& known, std::string_view token, const std::string& file) {
    const auto first = static_cast<uint32_t>(known.num_tokens);
    for (const SpecialTokens& run : known.specials) {
        for (uint32_t i = 0; i < run.count; ++i)
            if (fmt::format(fmt::runtime(run.name), run.first_number + i) == token)
                return first + run.offset + i;
    }
    throw UserError("{}: {} has no special token {}", file, known.name, shown(token));
}

/// Finds the file among those that are known. A copy with "\r\n" is the same file.
const KnownFile& find_known(const TokenizerFile& file, size_t num_tokens) {
    std::string content = file.content;
    std::erase(content, '\r');
    const std::string digest = digest_of(content);
    const auto known = std::ranges::find(kKnownFiles, digest, &KnownFile::digest);
    if (known != kKnownFiles.end()) return *known;
    std::string names, others;
    for (const KnownFile& candidate : kKnownFiles) {
        names += (names.empty() ? "" : ", ") + std::string(candidate.name);
        if (candidate.num_tokens == num_tokens)
            others =
                fmt::format(", as {} has, but its bytes differ from {}'s", candidate.name, candidate.name);
    }
    throw UserError(
        "{} is a tiktoken file of {} tokens{}. Such a file does not say its pattern and special tokens, so "
        "only those of {} are read, known by their bytes. Use the model's tokenizer.json, which transformers "
        "writes: AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER)",
        file.path.string(), num_tokens, others, names);
}

/// The special tokens of tekken.json files that do not list them, by their ids.
constexpr const char* kTekkenNames =
    "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] "
    "[TOOL_CALLS] [IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] "
    "[/SYSTEM_PROMPT] [TOOL_CONTENT]";

std::vector<std::string> listed_specials(const JsonField& list) {
    if (list.is_null()) {
        std::istringstream words(kTekkenNames);
        return {std::istream_iterator<std::string>(words), {}};
    }
    std::vector<std::string> names;
    for (const JsonField& entry : list.list()) {
        if (read_id(entry["rank"]) != names.size())
            entry["rank"].refuse(fmt::format("is not {}: the ranks must be 0, 1, 2 ...", names.size()));
        names.push_back(entry["token_str"].string());
    }
    return names;
}

/// Returns the first `count` tokens of Mistral's list.
std::vector<std::string> read_tekken_tokens(const JsonField& vocab, size_t count) {
    const std::vector<JsonField> entries = vocab.list();
    if (entries.size() < count)
        vocab.refuse(fmt::format("has {} tokens, but config says {}", entries.size(), count));
    std::vector<std::string> tokens;
    tokens.reserve(count);
    for (const JsonField& entry : std::span(entries).first(count)) {
        auto token = decode_base64(entry["token_bytes"].string());
        if (!token) entry["token_bytes"].refuse("is not base 64");
        if (read_id(entry["rank"]) != tokens.size())
            entry["rank"].refuse(fmt::format("is not {}: the ranks must be 0, 1, 2 ...", tokens.size()));
        tokens.push_back(std::move(*token));
    }
    return tokens;
}

}  // namespace

bool is_tiktoken(const std::string& content) {
    std::string_view line = std::string_view(content).substr(0, content.find('\n'));
    if (line.ends_with('\r')) line.remove_suffix(1);
    return read_token_line(line).has_value();
}

std::unique_ptr<Tokenizer> read_tiktoken(const TokenizerFile& file) {
    const std::string name = file.path.string();
    const std::vector<std::string> tokens = read_tokens(file);
    const KnownFile& known = find_known(file, tokens.size());
    BpeParts parts = parts_of(tokens, 0, name);
    parts.splits = {{.pattern = std::make_shared<Pattern>(known.pattern, name)}};
    parts.normalize_to_nfc = known.normalizes_to_nfc;
    parts.divides_runs = known.divides_runs;
    // A text's special tokens are read as text, so the model knows only their ids.
    std::vector<AddedToken> specials;
    for (const SpecialTokens& run : known.specials) {
        const auto first = static_cast<uint32_t>(tokens.size()) + run.offset;
        parts.texts.resize(std::max<size_t>(parts.texts.size(), first + run.count));
        for (uint32_t i = 0; i < run.count; ++i)
            specials.push_back(
                special_token(fmt::format(fmt::runtime(run.name), run.first_number + i), first + i));
    }
    const auto id_of = [&](const std::optional<std::string>& wanted,
                           const char* own) -> std::optional<uint32_t> {
        if (!wanted && own == nullptr) return std::nullopt;
        return find_special(known, wanted ? *wanted : own, name);
    };
    parts.info = {.name = file.path.filename().string(),
                  .digest = file.digest,
                  .vocab_size = static_cast<int64_t>(parts.texts.size()),
                  .prefix = {},
                  .suffix = {},
                  .begin_of_text = id_of(file.begin_of_text, known.begin_of_text),
                  .end_of_text = id_of(file.end_of_text, known.end_of_text),
                  .special_tokens = std::move(specials),
                  .warnings = file.warnings};
    if (known.begin_of_text != nullptr) parts.info.prefix = {find_special(known, known.begin_of_text, name)};
    return make_bpe_tokenizer(std::move(parts));
}

bool is_tekken(const nlohmann::ordered_json& json) {
    return json.is_object() && json.contains("config") && json.contains("vocab") && !json.contains("model");
}

std::unique_ptr<Tokenizer> read_tekken(const TokenizerFile& file, const nlohmann::ordered_json& json) {
    const std::string name = file.path.string();
    const JsonField root(json, name), config = root["config"];
    const uint32_t vocab_size = read_id(config["default_vocab_size"]);
    const uint32_t num_specials = read_id(config["default_num_special_tokens"]);
    const std::vector<std::string> specials = listed_specials(root["special_tokens"]);
    if (num_specials >= vocab_size || specials.size() > num_specials) {
        config.refuse(
            fmt::format("says a vocabulary of {} tokens with {} special ones, of which {} are listed",
                        vocab_size, num_specials, specials.size()));
    }
    BpeParts parts =
        parts_of(read_tekken_tokens(root["vocab"], vocab_size - num_specials), num_specials, name);
    parts.splits = {{.pattern = std::make_shared<Pattern>(config["pattern"].string(), name)}};
    const auto id_of = [&](const std::string& token) {
        const auto found = std::ranges::find(specials, token);
        if (found == specials.end()) root.refuse("has no special token " + shown(token));
        return static_cast<uint32_t>(found - specials.begin());
    };
    const uint32_t begin_of_text = id_of(file.begin_of_text.value_or("<s>"));
    std::vector<AddedToken> special_tokens;
    for (uint32_t id = 0; id < specials.size(); ++id)
        special_tokens.push_back(special_token(specials[id], id));
    parts.info = {.name = file.path.filename().string(),
                  .digest = file.digest,
                  .vocab_size = vocab_size,
                  .prefix = {begin_of_text},
                  .suffix = {},
                  .begin_of_text = begin_of_text,
                  .end_of_text = id_of(file.end_of_text.value_or("</s>")),
                  .special_tokens = std::move(special_tokens),
                  .warnings = file.warnings};
    return make_bpe_tokenizer(std::move(parts));
}

}  // namespace argosy::tokenizer

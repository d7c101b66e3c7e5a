#include "tokenizer/tokenizer.h"

#include <fmt/ranges.h>
#include <xxhash.h>

#include <charconv>

#include "base/content_kind.h"
#include "base/error.h"
#include "base/raw_file.h"
#include "base/strict_json.h"
#include "tokenizer/tokenizer_file.h"

namespace argosy::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxBytes = int64_t{1} << 30;  // of a tokenizer's file; published ones have up to 40 MB

constexpr const char* kForms = "neither tokenizer.json, nor tiktoken, nor tekken.json, nor SentencePiece";

/// Each byte of a text is a token.
class ByteTokenizer : public Tokenizer {
  public:
    ByteTokenizer() : Tokenizer({.name = kBytes, .vocab_size = kEndOfText + 1, .end_of_text = kEndOfText}) {}

    void encode(std::string_view text, Ids& ids) const override {
        const size_t size = ids.size();
        ids.resize(size + text.size());
        for (size_t i = 0; i < text.size(); ++i) ids[size + i] = static_cast<unsigned char>(text[i]);
    }

    std::string decode(std::span<const uint32_t> ids) const override {
        std::string text;
        for (const uint32_t id : ids) {
            if (id < kEndOfText) text.push_back(static_cast<char>(id));
        }
        return text;
    }

  private:
    static constexpr uint32_t kEndOfText = 256;
};

/// The name of a token: a string, or an object with `content`.
std::optional<std::string> read_token_name(const JsonField& token) {
    if (token.is_null()) return std::nullopt;
    return token.is_object() ? token["content"].string() : token.string();
}

/// Reads the tokens' names from the text of the special_tokens_map.json beside the file.
void read_map(const std::string& text, TokenizerFile& file) {
    const std::string name = (folder_of(file.path) / kMapName).string();
    const nlohmann::ordered_json json = parse_json(text, name);
    const JsonField root(json, name);
    root.members();
    if (!file.begin_of_text) file.begin_of_text = read_token_name(root["bos_token"]);
    if (!file.end_of_text) file.end_of_text = read_token_name(root["eos_token"]);
}

/// Reads the special tokens by their ids. Entries of other forms are those of other programs.
std::vector<AddedToken> read_special_tokens(const JsonField& tokens) {
    std::vector<AddedToken> special;
    if (!tokens.is_object()) return special;
    for (const auto& [id, entry] : tokens.members()) {
        uint32_t number = 0;
        const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number);
        const JsonField token = tokens[id];
        if (error != std::errc() || end != id.data() + id.size() || !token.is_object()) continue;
        if (!token["special"].boolean(false)) continue;
        special.push_back(
            {.content = token["content"].string(), .id = number, .special = true, .normalized = false});
    }
    return special;
}

/// Reads the tokens' names from the text of the tokenizer_config.json beside the file.
void read_config(const std::string& text, TokenizerFile& file) {
    const std::string name = (folder_of(file.path) / kConfigName).string();
    const nlohmann::ordered_json json = parse_json(text, name);
    const JsonField root(json, name);
    root.members();
    file.begin_of_text = read_token_name(root["bos_token"]);
    file.end_of_text = read_token_name(root["eos_token"]);
    file.special_tokens = read_special_tokens(root["added_tokens_decoder"]);
    file.add_begin_of_text = root["add_bos_token"].boolean(false);
    file.add_end_of_text = root["add_eos_token"].boolean(false);
}

bool is_json(const std::string& content) {
    const size_t begin = content.find_first_not_of(" \t\r\n");
    return begin != content.npos && content[begin] == '{';
}

/// A SentencePiece model is a message of Protocol Buffers, whose first field is the list of pieces.
bool is_sentence_piece(const std::string& content) { return content.starts_with('\n'); }

/// `names` has the files beside `path` that name its tokens.
TokenizerFile make_file(const fs::path& path, const std::string& content, const FolderFiles& names,
                        const std::string& end_of_text) {
    TokenizerFile file{.path = path, .content = content, .digest = digest_of(content)};
    if (const auto config = names.find(kConfigName); config != names.end()) read_config(config->second, file);
    if (const auto map = names.find(kMapName); map != names.end()) read_map(map->second, file);
    if (!end_of_text.empty()) file.end_of_text = end_of_text;
    return file;
}

std::unique_ptr<Tokenizer> parse_file(const TokenizerFile& file) {
    // The first byte of a SentencePiece model is a line break, so it comes before other binary files.
    const std::string kind = is_sentence_piece(file.content) ? "" : kind_of_content(file.content);
    if (!kind.empty()) throw UserError("{} is {}, not a tokenizer: {}", file.path.string(), kind, kForms);
    if (is_json(file.content)) {
        const nlohmann::ordered_json json = parse_json(file.content, file.path.string());
        return is_tekken(json) ? read_tekken(file, json) : read_tokenizer_json(file, json);
    }
    if (is_tiktoken(file.content)) return read_tiktoken(file);
    if (is_sentence_piece(file.content)) return read_sentence_piece(file);
    throw UserError("{} is not a tokenizer: {}", file.path.string(), kForms);
}

}  // namespace

std::string digest_of(const std::string& content) {
    const XXH128_hash_t hash = XXH3_128bits(content.data(), content.size());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::vector<fs::path> tokenizer_files_in(const fs::path& folder) {
    std::vector<fs::path> files;
    if (folder.empty()) return files;
    for (const char* name : kFileNames) {
        std::error_code unknown;
        if (fs::exists(folder / name, unknown)) files.push_back(folder / name);
    }
    return files;
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& source, const std::string& end_of_text) {
    if (source == kBytes) {
        if (end_of_text.empty()) return std::make_unique<ByteTokenizer>();
        throw UserError("the tokenizer '{}' has an end of text of its own; leave out '{}'", kBytes,
                        end_of_text);
    }
    if (!fs::exists(source)) {
        throw UserError("there is no tokenizer '{}': name '{}', a tokenizer's file, or a folder with one",
                        source, kBytes);
    }
    const bool is_folder = fs::is_directory(source);
    const fs::path folder = is_folder ? fs::path(source) : folder_of(source);
    FolderFiles files;
    for (const char* name : {kConfigName, kMapName})
        if (fs::exists(folder / name)) files[name] = read_text(folder / name, kMaxBytes);
    if (!is_folder) {
        const TokenizerFile file = make_file(source, read_text(source, kMaxBytes), files, end_of_text);
        try {
            return parse_file(file);
        } catch (const UserError& error) {
            for (const fs::path& other : tokenizer_files_in(folder))
                if (other != file.path)
                    throw UserError("{}; or name {} beside it", error.what(), other.string());
            throw;
        }
    }
    for (const fs::path& file : tokenizer_files_in(folder))
        files[file.filename().string()] = read_text(file, kMaxBytes);
    if (auto tokenizer = parse_tokenizer(folder, files, end_of_text)) return tokenizer;
    throw UserError("the folder {} has no {}", source, fmt::join(kFileNames, ", no "));
}

std::unique_ptr<Tokenizer> parse_tokenizer(const fs::path& folder, const FolderFiles& files,
                                           const std::string& end_of_text) {
    std::string refusals;
    for (const char* name : kFileNames) {
        const auto file = files.find(name);
        if (file == files.end()) continue;
        try {
            TokenizerFile parsed = make_file(folder / name, file->second, files, end_of_text);
            if (!refusals.empty())
                parsed.warnings = {fmt::format("{} is the tokenizer, because {}", name, refusals)};
            return parse_file(parsed);
        } catch (const UserError& error) {
            refusals += (refusals.empty() ? "" : "; and ") + std::string(error.what());
        }
    }
    if (!refusals.empty()) throw UserError("{}", refusals);
    return nullptr;
}

}  // namespace argosy::tokenizer

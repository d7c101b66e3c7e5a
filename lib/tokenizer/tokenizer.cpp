#include "tokenizer/tokenizer.h"

#include <xxhash.h>

#include "base/error.h"
#include "base/raw_file.h"
#include "base/strict_json.h"
#include "tokenizer/json_field.h"
#include "tokenizer/tokenizer_file.h"

namespace argosy::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigName = "tokenizer_config.json";
constexpr int64_t kMaxBytes = int64_t{1} << 30;  // of a tokenizer's file; published ones have up to 40 MB

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

std::string digest_of(const std::string& content) {
    const XXH128_hash_t hash = XXH3_128bits(content.data(), content.size());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

/// Returns the file of a tokenizer's folder.
fs::path file_in(const fs::path& folder) {
    if (auto file = tokenizer_file_in(folder)) return *std::move(file);
    throw UserError("the folder {} has no tokenizer.json and no tokenizer.model", folder.string());
}

/// The name of a token: a string, or an object with `content`.
std::optional<std::string> read_token_name(const JsonField& token) {
    if (token.is_null()) return std::nullopt;
    return token.is_object() ? token["content"].string() : token.string();
}

/// Reads the tokens' names from the text of the tokenizer_config.json beside the file.
void read_config(const std::string& text, TokenizerFile& file) {
    const std::string name = (folder_of(file.path) / kConfigName).string();
    const nlohmann::ordered_json json = parse_json(text, name);
    const JsonField root(json, name);
    root.members();
    file.begin_of_text = read_token_name(root["bos_token"]);
    file.end_of_text = read_token_name(root["eos_token"]);
    file.add_begin_of_text = root["add_bos_token"].boolean(false);
    file.add_end_of_text = root["add_eos_token"].boolean(false);
}

bool is_json(const std::string& content) {
    const size_t begin = content.find_first_not_of(" \t\r\n");
    return begin != content.npos && content[begin] == '{';
}

/// A SentencePiece model is a message of Protocol Buffers, whose first field is the list of pieces.
bool is_sentence_piece(const std::string& content) { return content.starts_with('\n'); }

}  // namespace

std::optional<fs::path> tokenizer_file_in(const fs::path& folder) {
    if (folder.empty()) return {};
    for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
        std::error_code unknown;
        if (fs::exists(folder / name, unknown)) return folder / name;
    }
    return {};
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
    const fs::path path = fs::is_directory(source) ? file_in(source) : fs::path(source);
    const fs::path config = folder_of(path) / kConfigName;
    std::optional<std::string> config_text;
    if (fs::exists(config)) config_text = read_text(config, kMaxBytes);
    return parse_tokenizer(path, read_text(path, kMaxBytes), config_text, end_of_text);
}

std::unique_ptr<Tokenizer> parse_tokenizer(const fs::path& path, std::string content,
                                           const std::optional<std::string>& config,
                                           const std::string& end_of_text) {
    TokenizerFile file{.path = path, .content = std::move(content)};
    file.digest = digest_of(file.content);
    if (config) read_config(*config, file);
    if (!end_of_text.empty()) file.end_of_text = end_of_text;
    if (is_json(file.content)) return read_tokenizer_json(file);
    if (is_tiktoken(file.content)) return read_tiktoken(file);
    if (is_sentence_piece(file.content)) return read_sentence_piece(file);
    throw UserError("{} is not a tokenizer: neither tokenizer.json, nor tiktoken, nor SentencePiece",
                    file.path.string());
}

}  // namespace argosy::tokenizer

// A tokenizer turns texts into token ids and ids into texts. Programs use the interface Tokenizer;
// open_tokenizer() makes one from a file, or the tokenizer `bytes`, which needs no file.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"

namespace argosy::tokenizer {

using Ids = std::vector<uint32_t>;

struct TokenizerInfo {
    std::string name;        // "bytes", or the name of the tokenizer's file
    std::string digest;      // XXH3-128 of the file, in hex; empty if there is no file
    int64_t vocab_size = 0;  // the largest id plus one
    Ids prefix, suffix;      // what the file's template puts around each text, such as a begin-of-text token
    std::optional<uint32_t> begin_of_text, end_of_text;
    std::vector<AddedToken> special_tokens = {};  // those that a chat template may write
    /// Messages that a program shows before it makes ids with the tokenizer.
    std::vector<std::string> warnings = {};
};

/// Immutable, so any thread may call any function.
class Tokenizer {
  public:
    explicit Tokenizer(TokenizerInfo info) : info_(std::move(info)) {}
    virtual ~Tokenizer() = default;
    Tokenizer(const Tokenizer&) = delete;

    const TokenizerInfo& info() const { return info_; }

    /// Appends the ids of `text`, without prefix and suffix. Malformed UTF-8 is read as U+FFFD, except by the
    /// tokenizer `bytes`.
    virtual void encode(std::string_view text, Ids& ids) const = 0;

    /// Appends the ids of a text between special tokens, or before the first one. Names of special tokens in
    /// it are text, whatever encode() makes of them.
    virtual void encode_plain(std::string_view text, Ids& ids) const { encode(text, ids); }

    /// Returns the text of the ids. Special tokens are left out. Ids that are not in the vocabulary are an
    /// error of the caller. The text may end in an incomplete character.
    virtual std::string decode(std::span<const uint32_t> ids) const = 0;

  private:
    TokenizerInfo info_;
};

/// The name of the tokenizer whose tokens are the 256 bytes and an end of text.
inline constexpr const char* kBytes = "bytes";

/// The names of a tokenizer's file in its folder. The first one that can be read is the tokenizer.
inline constexpr std::array kFileNames = {"tokenizer.json", "tokenizer.model", "tekken.json",
                                          "qwen.tiktoken"};

/// The files of those names in a folder, in that order.
std::vector<std::filesystem::path> tokenizer_files_in(const std::filesystem::path& folder);

/// Returns the tokenizer `source`, which is kBytes or the path of a tokenizer's file or folder. `end_of_text`
/// names the token that ends a text; if empty, the tokenizer's files say it. Throws UserError if there is no
/// such tokenizer.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& source, const std::string& end_of_text = "");

}  // namespace argosy::tokenizer

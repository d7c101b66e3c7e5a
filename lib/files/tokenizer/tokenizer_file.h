// The files of tokenizers. open_tokenizer() looks at a file's bytes to find which of these readers it needs.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/json_field.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/tokenizer.h"

namespace argosy::tokenizer {

/// The files beside a tokenizer's that name its tokens.
inline constexpr const char *kConfigName = "tokenizer_config.json", *kMapName = "special_tokens_map.json";

struct TokenizerFile {
    std::filesystem::path path;
    std::string content;
    std::string digest;  // XXH3-128 of the content, in hex
    // The names of tokens, from the files beside this one (FolderFiles) or from the command line.
    std::optional<std::string> begin_of_text, end_of_text;
    std::vector<AddedToken> special_tokens = {};  // of tokenizer_config.json's added_tokens_decoder
    bool add_begin_of_text = false, add_end_of_text = false;  // add_bos_token, add_eos_token
    std::vector<std::string> warnings = {};                   // for TokenizerInfo
};

/// XXH3-128 in hex.
std::string digest_of(const std::string& content);

/// The id of a token, or another number below 2^31.
inline uint32_t read_id(const JsonField& field) { return field.whole<uint32_t>(0, (1u << 31) - 1); }

/// The contents of a folder's files by name: those of kFileNames, and tokenizer_config.json and
/// special_tokens_map.json, which name tokens. If both name one, as `eos_token` for example,
/// tokenizer_config.json counts.
using FolderFiles = std::map<std::string, std::string>;

/// Makes a tokenizer from the files of a folder, whose path is for messages. Throws UserError if none of
/// them can be read. Null if none has one of kFileNames.
std::unique_ptr<Tokenizer> parse_tokenizer(const std::filesystem::path& folder, const FolderFiles& files,
                                           const std::string& end_of_text = "");

// Each throws UserError, which names the file, if it is wrong or not supported.

/// Hugging Face's tokenizer.json with a byte-level BPE.
std::unique_ptr<Tokenizer> read_tokenizer_json(const TokenizerFile& file, const nlohmann::ordered_json& json);

/// A known tiktoken file: a token in base 64 and its rank in each line.
std::unique_ptr<Tokenizer> read_tiktoken(const TokenizerFile& file);
bool is_tiktoken(const std::string& content);

/// Mistral's tekken.json: tokens and special tokens with their ranks, and the pattern.
std::unique_ptr<Tokenizer> read_tekken(const TokenizerFile& file, const nlohmann::ordered_json& json);
bool is_tekken(const nlohmann::ordered_json& json);

/// A SentencePiece model.
std::unique_ptr<Tokenizer> read_sentence_piece(const TokenizerFile& file);

}  // namespace argosy::tokenizer

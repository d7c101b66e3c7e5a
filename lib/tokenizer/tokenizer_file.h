// The files of tokenizers. open_tokenizer() looks at a file's bytes to find which of these readers it needs.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "tokenizer/tokenizer.h"

namespace argosy::tokenizer {

struct TokenizerFile {
    std::filesystem::path path;
    std::string content;
    std::string digest;  // XXH3-128 of the content, in hex
    // The names of tokens, from tokenizer_config.json beside the file or from the command line.
    std::optional<std::string> begin_of_text, end_of_text;
    bool add_begin_of_text = false, add_end_of_text = false;  // add_bos_token, add_eos_token
};

/// Makes a tokenizer from the content of its file and of the tokenizer_config.json beside it, if there is
/// one; the paths are for messages. Throws UserError if the file is none of the forms that follow.
std::unique_ptr<Tokenizer> parse_tokenizer(const std::filesystem::path& path, std::string content,
                                           const std::optional<std::string>& config,
                                           const std::string& end_of_text = "");

// Each throws UserError, which names the file, if it is wrong or not supported.

/// Hugging Face's tokenizer.json with a byte-level BPE.
std::unique_ptr<Tokenizer> read_tokenizer_json(const TokenizerFile& file);

/// A tiktoken file as Llama 3 ships it: a token in base 64 and its rank in each line.
std::unique_ptr<Tokenizer> read_tiktoken(const TokenizerFile& file);
bool is_tiktoken(const std::string& content);

/// A SentencePiece model.
std::unique_ptr<Tokenizer> read_sentence_piece(const TokenizerFile& file);

}  // namespace argosy::tokenizer

// Trains a byte-level BPE. Texts are cut into pieces by a pattern; then the most frequent pair of neighboring
// tokens becomes a token, again and again. Among pairs that are equally frequent, the one with the lowest ids
// wins, so the result depends only on the texts, not on their order.
//
// Cost: the counts of pairs are updated only where a merge changes a piece, and each piece is stored once
// with its count. Memory grows with the number of different pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tokenizer/pattern.h"

namespace argosy::tokenizer {

enum class TrainedPattern { Gpt2, Llama3 };

/// The token that ends a text in trained tokenizers, with the last id.
inline constexpr const char* kTrainedEndOfText = "<|endoftext|>";

/// How the texts of TrainedTokenizer begin, unlike files of other tools.
inline constexpr const char* kTrainedMark = "{\n  \"version\": \"1.0\",\n  \"added_tokens\": [";
inline constexpr const char* kTrainedConfigMark =
    "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"eos_token\"";

struct TrainedTokenizer {
    std::string tokenizer_json, tokenizer_config_json;
    int64_t vocab_size;
};

class BpeTrainer {
  public:
    /// `vocab_size` counts the 256 bytes, the merges and the end of text. UserError if it is too small.
    BpeTrainer(TrainedPattern pattern, int64_t vocab_size);

    /// Counts the pieces of a text.
    void add(std::string_view text);

    /// Returns the trained tokenizer. The vocabulary is smaller than requested if no pair occurs twice any
    /// more.
    TrainedTokenizer train() const;

  private:
    TrainedPattern kind_;
    int64_t vocab_size_;
    Pattern pattern_;
    std::unordered_map<std::string, int64_t> counts_;  // of each piece
    std::string repaired_, piece_;
};

}  // namespace argosy::tokenizer

// The tokenizers whose model is a byte-level BPE. A text goes through these stages, as in the package
// `tokenizers`: added tokens are cut out; what is between them is normalized; added tokens of normalized text
// are cut out; splits cut the text into pieces; the model makes tokens of each piece.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pattern.h"
#include "tokenizer/tokenizer.h"

namespace argosy::tokenizer {

/// A cut of pieces into smaller ones.
struct Split {
    /// The pieces that the matches and the texts between them become.
    enum class Behavior { Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous };

    std::shared_ptr<const Pattern> pattern;  // null: nothing matches
    Behavior behavior = Behavior::Isolated;
    bool invert = false;            // matches and the texts between them change their roles
    bool add_prefix_space = false;  // a piece that does not begin with a space gets one before it is cut
};

struct BpeParts {
    TokenizerInfo info;
    bool normalize_to_nfc = false;
    /// Divides a text as Meta's code for Llama does, and encodes each part alone: after 400,000 characters,
    /// and after 25,000 in a row that are all white space or all none.
    bool divides_runs = false;
    std::vector<AddedToken> added_tokens;  // found in any text; the special ones are also in info
    std::vector<Split> splits;
    std::array<uint32_t, 256> byte_ids{};
    std::vector<BpeMerge> merges;
    BpeVocabulary whole_pieces;
    std::vector<std::string> texts;  // of each id, when ids are decoded; empty for special tokens
};

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts);

}  // namespace argosy::tokenizer

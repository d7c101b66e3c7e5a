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

#include "tokenizer/bpe.h"
#include "tokenizer/pattern.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace argosy::tokenizer {

/// A token that is found in the text itself, before it is cut into pieces.
struct AddedToken {
    std::string content;
    uint32_t id = 0;
    bool special = false;      // left out when ids are decoded
    bool single_word = false;  // not found beside word characters
    bool lstrip = false;       // includes the white space before it
    bool rstrip = false;       // includes the white space after it
    bool normalized = true;    // searched for in the normalized text
};

/// Finds tokens in texts: at each place the longest, from left to right. Immutable.
class AddedTokenSearch {
  public:
    /// The content of each token is as it stands in the texts. The first of several tokens with the same
    /// content is found.
    explicit AddedTokenSearch(std::vector<AddedToken> tokens);

    struct Part {
        std::string_view text;
        const AddedToken* token;  // null for text between tokens
    };

    /// Cuts a text, which is valid UTF-8, into tokens and the texts between them.
    void split(std::string_view text, std::vector<Part>& parts) const;

    bool empty() const { return tokens_.empty(); }

  private:
    struct Child {
        char byte;
        uint32_t node;
    };
    struct Node {
        int32_t token = -1;
        std::vector<Child> children;
    };

    uint32_t child_of(uint32_t node, char byte) const;  // 0 if there is none
    const AddedToken* longest_at(std::string_view text, size_t begin) const;
    bool is_beside_word(std::string_view text, size_t begin, size_t end) const;

    std::vector<AddedToken> tokens_;
    std::vector<Node> nodes_;
    std::vector<bool> may_begin_;  // of each byte
    CodeTable words_, spaces_;
};

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
    std::vector<AddedToken> added_tokens;
    std::vector<Split> splits;
    std::array<uint32_t, 256> byte_ids{};
    std::vector<BpeMerge> merges;
    BpeVocabulary whole_pieces;
    std::vector<std::string> texts;  // of each id, when ids are decoded; empty for special tokens
};

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts);

}  // namespace argosy::tokenizer

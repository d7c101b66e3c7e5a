// Tokens that are found in a text before the tokenizer's model cuts it into pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

    /// Cuts a text, which is valid UTF-8, into tokens and the texts between them. `may_have_token` says for
    /// each byte whether it may belong to the content of a token; without it each may.
    void split(std::string_view text, std::vector<Part>& parts,
               const std::vector<bool>* may_have_token = nullptr) const;

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
    const AddedToken* longest_at(std::string_view text, size_t begin,
                                 const std::vector<bool>* may_have_token) const;
    bool is_beside_word(std::string_view text, size_t begin, size_t end) const;

    std::vector<AddedToken> tokens_;
    std::vector<Node> nodes_;
    std::vector<bool> may_begin_;  // of each byte
};

}  // namespace argosy::tokenizer
